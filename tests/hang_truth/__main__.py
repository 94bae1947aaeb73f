"""Planted hangs, and what is told of them: ``python -m tests.hang_truth [--ranks 2,4,8] [--in-thread] [FAULT ...]``.

Trainings of one process, hung ones and healthy ones that pause for long: ``python -m tests.hang_truth --alone``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hang_truth.cases import ALONE_CASES, CASES, Case
from tests.hang_truth.judging import HEAD, judged, row
from tests.hang_truth.running import run_case


def main() -> int:
    """Print a row a run; 1 when one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--ranks", default="2,4,8", help="numbers of ranks (default %(default)s)")
    parser.add_argument("--in-thread", action="store_true", help="train in another thread than the main one")
    parser.add_argument("--alone", action="store_true", help="trainings of one process")
    parser.add_argument("--jobs", type=int, default=4, help="of these, so many at a time (default %(default)s)")
    parser.add_argument("--keep", help="keep logs and output there")
    parser.add_argument("faults", nargs="*", help="default: all")
    args = parser.parse_args()
    chosen = ALONE_CASES if args.alone else CASES
    cases = [case for case in chosen if not args.faults or case.fault in args.faults]
    if args.in_thread:  # gloo does not connect again after a restart from there, whoever watches
        cases = [case for case in cases if not case.restarts]
    print(HEAD, flush=True)
    wrong = 0
    if args.alone:
        with ThreadPoolExecutor(args.jobs) as pool:
            wrong = sum(pool.map(lambda case: _run(case, 1, args.keep, False), cases))
    for ranks in [] if args.alone else map(int, args.ranks.split(",")):
        for case in cases:
            wrong += _run(case, ranks, args.keep, args.in_thread)
    print(f"{wrong} wrong" if wrong else "all as they must be")
    return 1 if wrong else 0


def _run(case: Case, ranks: int, keep: str | None, in_thread: bool) -> bool:
    with tempfile.TemporaryDirectory(prefix="tuimon-hang-") as temporary:
        folder = (Path(keep) if keep else Path(temporary)) / f"{case.fault}-{ranks}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        verdict = judged(case, ranks, run_case(case, ranks, folder, in_thread))
    print(row(case, ranks, verdict), flush=True)
    return not verdict.is_right


if __name__ == "__main__":
    sys.exit(main())
