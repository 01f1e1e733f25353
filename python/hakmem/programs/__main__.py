"""python -m hakmem.programs NAME [options]: drives one real program and prints its figures.

The program runs under the allocator that HAKMEM_LAB_PRELOAD names (as LD_PRELOAD would), this
driver and its load generators under the C library's own. The last line of the output is JSON.
Status 2: the program can't be run here; 3: it failed, or its results are wrong.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys

from hakmem.programs import DRIVERS, common


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="hakmem.programs", description=__doc__.split("\n")[0])
    names = result.add_subparsers(dest="program", required=True, metavar="NAME")
    for name, driver in DRIVERS.items():
        options = names.add_parser(name, help=driver.ABOUT)
        options.add_argument("--seed", type=int, default=1, help="of all that is random")
        driver.add_options(options)
    return result


def canonical(options: argparse.Namespace) -> str:
    given = {key: value for key, value in vars(options).items() if key not in ("program", "seed")}
    return " ".join(f"{key}={value}" for key, value in given.items())


def too_late(*_) -> None:
    raise common.Failed(f"not done after {common.DRIVER_SECONDS} s")


def main() -> int:
    common.leave_preload()
    options = parser().parse_args()
    driver = DRIVERS[options.program]
    # So that what was started is ended, and what was written removed, when the harness gives up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(common.DRIVER_SECONDS)
    try:
        reason = driver.available()
        if reason:
            raise common.Unusable(reason)
        with common.work_folder() as work:
            figures = driver.drive(options, work)
    except common.Unusable as reason:
        print(f"{options.program}: {reason}", file=sys.stderr)
        return 2
    except common.Failed as reason:
        print(f"{options.program}: {reason}", file=sys.stderr)
        return 3
    finally:
        signal.alarm(0)
    head = {"workload": options.program, "params": canonical(options), "seed": options.seed}
    print(json.dumps(head | figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
