"""``python -m tests.diff_truth``: how often a comparison is wrong, and what it finds."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.diff_truth.floor import floor_line
from tests.diff_truth.gpu_steps import deviation, drawn_pairs, recorded_steps
from tests.diff_truth.judging import HEAD, Judged, line
from tests.diff_truth.pairs import KINDS, cut_pairs, long_runs, real_pairs
from tuimon.sources.log.reader import read_log

#: Of pairs without a difference at most this share may be called different; of planted ones at least the rest found.
_ERROR = 0.05
#: Deviation of steps from which a minute of them is too short to show 3 % for certain.
_EVEN = 0.10
#: What is planted, and the length of the pairs that must show it.
_SLOWER, _MINUTE_S = 1.03, 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.diff_truth", description=__doc__)
    parser.add_argument("--real", type=int, default=20, metavar="N", help="pairs of runs (default %(default)s)")
    parser.add_argument(
        "--cut", type=int, default=180, metavar="N", help="pairs cut from long runs (default %(default)s)"
    )
    parser.add_argument("--planted", type=int, default=40, metavar="N", help="pairs of a minute, one 3 %% slower")
    parser.add_argument("--busy", type=int, default=3, metavar="N", help="pairs with busy programs beside one run")
    parser.add_argument(
        "--drawn", type=int, default=40, metavar="N", help="pairs of drawn GPU steps, of each recording and kind"
    )
    parser.add_argument("--seconds", type=float, default=20, help="of each run of a pair (default %(default)s)")
    parser.add_argument("--long", type=float, default=180, help="seconds of each long run (default %(default)s)")
    parser.add_argument("--keep", metavar="DIR", help="keep logs there, and use those that are there")
    parser.add_argument("--runs", nargs="*", default=[], metavar="LOG", help="cut these instead of recording long runs")
    parser.add_argument("-v", "--verbose", action="store_true", help="what was said of each pair")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(HEAD, flush=True)
        real = _told("no difference, runs", real_pairs(folder, args.real, args.seconds), args.verbose)
        runs = [list(read_log(path)) for path in args.runs] or (long_runs(folder, args.long) if args.cut else [])
        cut = _told("no difference, cut of 20-60 s", cut_pairs(runs, args.cut, (20, 60)), args.verbose)
        planted = _told(
            "3 % slower, cut of 60 s", cut_pairs(runs, args.planted, (_MINUTE_S, _MINUTE_S), _SLOWER, 1), args.verbose
        )
        floor = [
            floor_line(name, records, _MINUTE_S, _SLOWER, _ERROR)
            for name, records in zip(args.runs or KINDS, runs, strict=False)
        ]
        drawn = _drawn(args.drawn, args.verbose)
        beside = _told(
            "no difference, one beside others", real_pairs(folder, args.busy, args.seconds, busy=2), args.verbose
        )
    for text in (*floor, *drawn):
        print(text)
    return _passed([*real, *cut], planted, beside)


def _drawn(number: int, verbose: bool) -> list[str]:
    """Minutes of steps of recorded GPU trainings, and the same 3 % slower: what came of them, in two lines."""
    same, even = [], []
    for name, steps_ms in recorded_steps().items() if number else ():
        title = f"{name} +-{100 * deviation(steps_ms):.0f} %"
        same += _told(title, drawn_pairs(steps_ms, number, _MINUTE_S), verbose)
        slower = _told("  3 % slower", drawn_pairs(steps_ms, number, _MINUTE_S, _SLOWER), verbose)
        even += slower if deviation(steps_ms) < _EVEN else []
    wrong = sum(each.outcome in ("slower", "faster") for each in same)
    hit = sum(each.outcome == "slower" for each in even)
    return [
        f"drawn steps called different without a difference: {wrong} of {len(same)}",
        f"3 % found where drawn steps vary by less than {100 * _EVEN:g} %: {hit} of {len(even)}",
    ]


def _told(title: str, pairs: Iterable[Judged], verbose: bool) -> list[Judged]:
    found = []
    for each in pairs:
        found.append(each)
        if verbose:
            print(f"  {each.name}: {each.found.headline if each.found else 'refused'}", flush=True)
    if found:
        print(line(title, found), flush=True)
    return found


def _passed(same: list[Judged], planted: list[Judged], beside: list[Judged]) -> int:
    """0 where all promises hold; prints them."""
    wrong = sum(each.outcome in ("slower", "faster") for each in (*same, *beside))
    hit = sum(each.outcome == "slower" for each in planted)
    said = sum(each.is_disturbed for each in beside)
    print(f"called different without a difference: {wrong} of {len(same) + len(beside)}")
    print(f"3 % found: {hit} of {len(planted)}")
    print(f"said that others ran beside: {said} of {len(beside)}")
    held = wrong <= _ERROR * (len(same) + len(beside)) and hit >= (1 - _ERROR) * len(planted) and said == len(beside)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
