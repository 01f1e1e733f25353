"""The page, the plots and the tables: nothing missing is passed over, nothing is fetched."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_results import full_file, make_rows, write

from hakmem import report
from hakmem.report import plots

SPEEDS = {"hakmem": 0.8, "mimalloc2": 0.9, "glibc": 1.0}
VOID = {"meta", "link", "br", "hr", "img", "input"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> report.Shown:
    folder = tmp_path_factory.mktemp("report")
    return report.show(full_file(folder / "all.csv", rounds=12), formats=("png",))


@pytest.fixture(scope="module")
def html(shown) -> str:
    return shown.page.read_text(encoding="utf-8")


class Checker(HTMLParser):
    """Every tag closed in order, every id once, every reference within the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.references: list[str] = []

    def handle_startendtag(self, tag, attributes):
        self.look(tag, attributes)

    def handle_starttag(self, tag, attributes):
        self.look(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def look(self, tag, attributes):
        assert tag not in ("script", "link", "iframe", "object", "embed")
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "srcset", "xlink:href", "action"):
                self.references.append(value)
                if value.startswith("#"):
                    self.targets.append(value[1:])
            self.targets += re.findall(r"url\(#([^)]*)\)", value or "")


def test_the_page_is_not_well_formed_or_fetches_something(html):
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    assert set(checker.targets) <= set(checker.ids)
    assert all(each.startswith(("#", "data:")) for each in checker.references)
    assert not re.search(r"url\((?!#)|@import|https?://", html)


def test_the_page_lacks_a_part(html):
    for anchor in ("how-to-read-it", "ranking", "time-by-workload", "peak-memory-by-workload",
                   "latency", "memory-over-time", "faults-and-growth", "refused-rows", "noise",
                   "what-was-measured", "conditions"):  # fmt: skip
        assert f'<section id="{anchor}">' in html
        assert f'href="#{anchor}"' in html
    assert html.count("<svg ") == html.count("<code>hakmem report all.csv</code> from rows of") == 7
    assert html.index("machine is unsteady") < html.index("Contents")
    assert "killed by signal 11" in html
    assert "prefers-color-scheme: dark" in html
    assert plots.INK not in html[html.index("<svg ") :]


def test_the_rows_cannot_be_had_from_the_page(html):
    data = re.search(r'href="data:text/csv;base64,([^"]*)"', html).group(1)
    lines = base64.b64decode(data).decode().splitlines()
    assert len(lines) == 1 + 12 * 12 * 9
    assert "histogram" not in lines[0] and "ns_per_op" in lines[0]


def test_what_a_file_says_of_itself_is_markup(tmp_path):
    rows = make_rows({"hakmem": 1.0, "<b>evil</b>": 1.1}, {"<i>x</i>": "micro"}, rounds=2)
    path = write(tmp_path / "x.csv", rows, {"command": "bench <script>alert(1)</script>"})
    text = report.show(path, plots=False).page.read_text(encoding="utf-8")
    assert not re.search(r"<(script|b|i)>", text)
    Checker().feed(text)


def test_a_plot_is_blank_or_cut(shown):
    assert len(shown.plots) == 7
    for path in shown.plots:
        image = Image.open(path).convert("RGB")
        assert image.width == 1200 and image.height >= 250
        pixels = np.asarray(image)
        assert colours(pixels) > 50
        # Nothing is cut off at the edges.
        border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        assert (border > 240).all(), path.name


def colours(pixels: np.ndarray) -> int:
    return len(np.unique(pixels.astype(np.uint32) @ np.array([65536, 256, 1], dtype=np.uint32)))


def test_an_allocator_changes_its_colour():
    names = ["glibc", "hakmem", "hakmem-learning", "mimalloc2", "x", "y"]
    all_looks = plots.looks(names, "hakmem")
    assert len({look.colour for look in all_looks.values()}) == len(names)
    assert plots.looks(["hakmem", "mimalloc2"], "hakmem")["mimalloc2"].colour == (
        all_looks["mimalloc2"].colour
    )


def test_a_broken_histogram_stops_the_report(tmp_path):
    rows = make_rows(SPEEDS, {"x": "latency"}, rounds=2)
    for row in rows:
        row["histogram"], row["p50_ns"], row["p99_ns"] = "HISTFAAAnonsense", "10", "90"
    found = report.show(write(tmp_path / "x.csv", rows), formats=("svg",))
    assert any("percentiles" in path.name for path in found.plots)


def test_plots_without_data_are_drawn_or_passed_over(tmp_path):
    path = write(tmp_path / "x.csv", make_rows(SPEEDS, {"x": "micro"}))
    found = report.show(path, formats=("svg",))
    assert not any("percentiles" in path.name or "over-time" in path.name for path in found.plots)
    text = found.page.read_text(encoding="utf-8")
    assert "Resident memory over time: no row has a series." in text


def test_the_table_hides_refused_rows_or_conditions(tmp_path, capsys):
    rows = make_rows(SPEEDS, {"x": "micro"})
    rows[0].update(error="no proof: served by libc.so.6", proof="")
    report.show(write(tmp_path / "x.csv", rows), html=False, plots=False)
    said = capsys.readouterr().out
    assert "1 of 36 rows do not count" in said
    assert "no proof: served by libc.so.6" in said
    for text in ("Linux 6.1", "madvise", "abc1234", "hakmem bench --suite quick", "mimalloc2 1.0"):
        assert text in said
    assert "\x1b[" not in said
    assert not (tmp_path / "x-report").exists()


def test_one_allocator_is_ranked_against_nothing(tmp_path, capsys):
    path = write(tmp_path / "x.csv", make_rows({"hakmem": 1.0}, {"x": "micro"}))
    found = report.show(path, formats=("svg",))
    assert "Only hakmem was measured: nothing to compare it with." in capsys.readouterr().out
    assert found.page.exists() and found.plots == ()


def test_one_round_gets_a_verdict(tmp_path, capsys):
    peers = {**SPEEDS, "jemalloc": 0.95}
    path = write(tmp_path / "x.csv", make_rows(peers, {"x": "micro"}, rounds=1))
    report.show(path, formats=("svg",))
    said = capsys.readouterr().out
    assert "Too few rounds (1)" in said
    assert "too few rounds" in said and " win" not in said
    assert "mimalloc2  0.8" in said


def test_a_file_without_hakmem_has_no_ranking(tmp_path, capsys):
    path = write(tmp_path / "x.csv", make_rows({"a": 1.0, "b": 2.0}, {"x": "micro"}))
    report.show(path, html=False, plots=False)
    said = capsys.readouterr().out
    assert "hakmem was not measured" in said and "geometric mean over 1 workloads" in said
    with pytest.raises(report.ReportError, match="choose of a, b"):
        report.show(path, candidate="c")


def test_nothing_but_refused_rows_gets_figures(tmp_path, capsys):
    rows = make_rows(SPEEDS, {"x": "micro"}, rounds=2)
    for row in rows:
        row["proof"] = ""
    report.show(write(tmp_path / "x.csv", rows), formats=("svg",))
    assert "No row counts, so there are no figures" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a results file"),
        ("a,b\n1,2\n", "is not a results file"),
        ("# hakmem-results 9\n# {}\n", "format 9"),
        ("# hakmem-results 1\n# {broken\n", "is damaged"),
        ("# hakmem-results 1\n# {}\nround,workload\n", "has no rows"),
        ("# hakmem-results 1\n# {}\nworkload,params\nx,y\n", r"no rows \(line 4 is no row"),
    ],
)
def test_a_file_that_is_none_ends_in_a_traceback(tmp_path, text, message):
    path = tmp_path / "x.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(report.ReportError, match=message):
        report.show(path)


def test_a_missing_file_ends_in_a_traceback(tmp_path):
    with pytest.raises(report.ReportError, match="No such file"):
        report.show(tmp_path / "none.csv")
    path = write(tmp_path / "x.csv", make_rows(SPEEDS, {"x": "micro"}, rounds=1))
    with pytest.raises(report.ReportError, match="there is no metric"):
        report.show(path, metric="speed")
    with pytest.raises(report.ReportError, match="no such format"):
        report.show(path, formats=("bmp",))


def test_a_row_that_was_cut_off_is_read(tmp_path, capsys):
    path = write(tmp_path / "x.csv", make_rows(SPEEDS, {"x": "micro"}, rounds=2))
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[: len(whole) - 40], encoding="utf-8")
    report.show(path, html=False, plots=False)
    said = capsys.readouterr().out
    assert "the last line is torn" in said and "5, of which 5 count" in said


def test_the_metric_that_was_asked_for_is_not_shown(tmp_path, capsys):
    path = write(tmp_path / "x.csv", make_rows(SPEEDS, {"x": "micro"}))
    report.show(path, html=False, plots=False, metric="wall_s")
    said = capsys.readouterr().out
    assert "Wall-clock time: hakmem" in said and "Peak memory" not in said


def test_a_browser_shows_a_blank_page(shown, tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    picture = tmp_path / "page.png"
    subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
         "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}",
         "--window-size=1280,3000", f"file://{Path(shown.page).resolve()}"],
        check=True, timeout=60, capture_output=True,
    )  # fmt: skip
    pixels = np.asarray(Image.open(picture).convert("RGB"))
    assert colours(pixels) > 200
    # Something on every screenful.
    for screen in np.array_split(pixels, 4):
        assert (screen != screen[0, 0]).any(axis=2).mean() > 0.02
