"""``python -m tests.rank_truth``: gloo ranks on this machine, one of them late; is it named, its phase, its line?"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.rank_truth.cases import CASES
from tests.rank_truth.judging import Failed, Judged, judged

HEAD = (
    f"{'training':<24}  {'late':>4}  {'told':>4}  {'phase':<10}  {'line':>4}  {'planted':>7}  {'told':>7}  right"
    "  also told"
)


def line(row: Judged) -> str:
    """One training."""
    case = row.case
    marks = [row.is_right, row.phase_is_right, row.line_is_right]
    late = case.late if case.late >= 0 else None
    planted, told = _percent(row.planted), _percent(row.share)
    right = "".join("-" if mark is None else "y" if mark else "N" for mark in marks)
    return (
        f"{case.name:<24}  {_or_dash(late):>4}  {_or_dash(row.rank):>4}  {_or_dash(row.phase):<10}"
        f"  {_or_dash(row.line):>4}  {planted:>7}  {told:>7}  {right:<5}  {' '.join(row.others)}"
    )


def totals(rows: Sequence[Judged]) -> str:
    """How often each was right."""
    late = [row for row in rows if row.case.late >= 0 or row.case.in_turn]
    balanced = [row for row in rows if row not in late]
    phases = [row.phase_is_right for row in late if row.phase_is_right is not None]
    lines = [row.line_is_right for row in late if row.line_is_right is not None]
    return (
        f"late rank right {sum(row.is_right for row in late)} of {len(late)},"
        f" phase right {sum(phases)} of {len(phases)},"
        f" line right {sum(lines)} of {len(lines)}, false tellings on balanced"
        f" {sum(not row.is_right for row in balanced)} of {len(balanced)}"
    )


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.0f} %"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rank_truth", description=__doc__)
    parser.add_argument("only", nargs="*", help="names of trainings, or the beginnings of some")
    parser.add_argument("--seconds", type=float, default=10, help="of each training (default %(default)s)")
    parser.add_argument("--keep", metavar="DIR", help="keep logs there, and use those that are there")
    args = parser.parse_args()
    rows: list[Judged] = []
    failed = 0
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in CASES:
            if args.only and not any(case.name.startswith(name) for name in args.only):
                continue
            try:
                rows.append(judged(case, args.seconds, folder))
                print(line(rows[-1]), flush=True)
            except Failed as error:
                failed += 1
                print(f"{case.name}: {error}", file=sys.stderr, flush=True)
    print(totals(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
