"""The `hakmem` command line."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import click

from hakmem import locate, run

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class AfterDashes(click.Command):
    """A command whose arguments after `--` are another program's, to be passed on as they are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["own_command"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def own_command() -> list[str]:
    return click.get_current_context().meta.get("own_command", [])


def version() -> str:
    try:
        return metadata.version("hakmem")
    except metadata.PackageNotFoundError:
        return "of a source tree"


def fail(text: str, status: int = 2) -> None:
    click.echo(f"hakmem: {text}", err=True)
    sys.exit(status)


@click.group(context_settings=CONTEXT)
@click.version_option(version(), prog_name="hakmem")
def cli() -> None:
    """A drop-in malloc, and the lab that compares it with others."""


@cli.command("run", cls=AfterDashes, context_settings=CONTEXT)
@click.option("--mode", type=click.Choice(run.MODES), help="Preset (HAKMEM_MODE).")
@click.option("--stats", is_flag=True, help="Report on stderr when the program ends.")
@click.option("--prof", is_flag=True, help="With the time of the allocator's own slow work.")
@click.option(
    "-o", "--option", "options", multiple=True, metavar="OPTION=VALUE",
    help="Any option of docs/options.md, such as -o bin_bytes=128k.",
)  # fmt: skip
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run_command(
    mode: str | None, stats: bool, prof: bool, options: tuple[str, ...], command: tuple[str, ...]
) -> None:
    """Run COMMAND under hakmem: `hakmem run [OPTIONS] -- COMMAND ARGS`.

    The command takes the place of this process: its input, output, signals and exit status are its
    own. Programs that it starts are served by hakmem too.
    """
    words = [*command, *own_command()]
    if not words:
        fail("run what? hakmem run [OPTIONS] -- COMMAND ARGS")
    try:
        settings = run.parse_settings(options)
        if mode:
            settings["HAKMEM_MODE"] = mode
        if stats or prof:
            settings["HAKMEM_STATS"] = "1"
        if prof:
            settings["HAKMEM_PROF"] = "1"
        run.execute(words, settings)
    except (run.RunError, locate.Missing) as error:
        fail(str(error), 127)


@cli.command("bench", cls=AfterDashes, context_settings={**CONTEXT, "ignore_unknown_options": True})
@click.option("--suite", "suite_name", metavar="NAME", help="quick, full, or one kind: see --list.")
@click.option("--list", "show_list", is_flag=True, help="List workloads, or the options of one.")
@click.option(
    "--self-profile", is_flag=True,
    help="What hakmem's own slow work costs, over sizes and threads: [--sizes A,B] [-t A,B].",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 1000), help="Rounds (own command: by --time).")
@click.option(
    "--time", "budget", type=click.FloatRange(5), default=90, show_default=True,
    help="Seconds that a comparison of your own command may take.",
)  # fmt: skip
@click.option("--only", metavar="A,B", help="These allocators only (hakmem always).")
@click.option(
    "--peer", "extra", multiple=True, metavar="NAME=FILE.so", help="An allocator of your own."
)
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME:OPTION=VALUE,...",
    help="hakmem with other options, as hakmem-NAME: --variant big:bin_bytes=256k.",
)  # fmt: skip
@click.option(
    "--peers-dir", type=click.Path(path_type=Path, file_okay=False),
    help="Where `hakmem peers build` put them.",
)  # fmt: skip
@click.option("--cpus", metavar="LIST", help="Run on these processors only, such as 0,2-3.")
@click.option("--timeout", type=click.FloatRange(1), help="Seconds that one process may take.")
@click.option("--counters", is_flag=True, help="Hardware counters too, where perf can read them.")
@click.option("--warm-up/--no-warm-up", default=True, help="One run of each that is not counted.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.csv",
    help="Results; an unfinished file of the same plan is gone on with.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Start anew where FILE.csv is there already.")
@click.option("--no-html", is_flag=True, help="No page and no plots beside the results.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def bench_command(words: tuple[str, ...], **options) -> None:
    """Compare allocators, hakmem among them.

    \b
    hakmem bench -- COMMAND ARGS     your own program: which allocator serves it best?
    hakmem bench --suite quick       a bit of everything, in five minutes
    hakmem bench --suite full        all; go on after a break by giving the same --out
    hakmem bench --list [WORKLOAD]   what there is, and what a workload takes
    hakmem bench WORKLOAD [ITS OPTIONS]
                                     one workload; lists make a matrix: larson -t 1,2,4 -M 128,1024
    """
    from hakmem import bench

    try:
        sys.exit(bench.main(list(words), own_command(), options))
    except bench.EXPECTED as error:
        fail(str(error))


@cli.command("report", context_settings=CONTEXT)
@click.argument("results", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--compare", "pair", nargs=2, type=click.Path(path_type=Path), metavar="A B",
    help="What changed from A to B; status 1 on a significant regression.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
    help="Page and plots go here (default: beside the results).",
)  # fmt: skip
@click.option("--no-html", is_flag=True, help="The terminal's tables only.")
@click.option("--metric", help="Of --compare: ns_per_op, wall_s, peak_rss_kib, instructions, ...")
@click.option(
    "--threshold", type=click.FloatRange(0, 1), default=0.01, show_default=True,
    help="Of --compare: changes below this share count as none.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Compare results of different machines all the same.")
def report_command(
    results: tuple[Path, ...],
    pair: tuple[Path, Path] | None,
    out: Path | None,
    no_html: bool,
    metric: str | None,
    threshold: float,
    force: bool,
) -> None:
    """Show what RESULTS hold: tables here, plots and one HTML page beside them."""
    from hakmem import report

    try:
        if pair is not None:
            sys.exit(report.compare(*pair, metric=metric, threshold=threshold, force=force))
        if not results:
            fail("report on what? hakmem report RESULTS.csv, or --compare A.csv B.csv")
        for path in results:
            report.show(path, out, html=not no_html, plots=not no_html)
    except report.ReportError as error:
        fail(str(error))


@cli.group("peers", context_settings=CONTEXT)
def peers_group() -> None:
    """The allocators that hakmem is compared with."""


@peers_group.command("build")
@click.argument("names", nargs=-1)
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER")
def peers_build(names: tuple[str, ...], into: Path | None) -> None:
    """Build them, pinned, from their source crates; needs cargo, gcc and make.

    NAMES: these only, such as mimalloc3 snmalloc; "rust" for the Rust program of the suite "real",
    once for each allocator that it can be linked with.
    """
    from hakmem import allocators

    folder = into or allocators.peers_folder_default()
    status = 0
    peers = [name for name in names if name != "rust"]
    if peers or not names:
        script = locate.native("peers/build.sh")
        status = subprocess.run(["bash", str(script), str(folder), *peers]).returncode
    if "rust" in names:
        from hakmem.programs import rust

        for name, path in rust.build(rust.binaries()).items():
            click.echo(f"rust, linked with {name}: {path}")
    sys.exit(status)


@peers_group.command("list")
@click.option("--peers-dir", type=click.Path(path_type=Path, file_okay=False))
def peers_list(peers_dir: Path | None) -> None:
    """What was found on this machine, and how to get what was not."""
    from hakmem import allocators

    found, missing = allocators.find(peers_dir, [])
    for allocator in found:
        where = allocator.library or "the C library's own"
        click.echo(f"{allocator.name:12} {allocator.version:28} {where}")
    for sentence in missing:
        click.echo(sentence)


def main() -> None:
    cli(prog_name="hakmem")
