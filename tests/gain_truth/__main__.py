"""``python -m tests.gain_truth``: what fixes gain as tuimon predicts it, and as measured with the fixed scripts."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.gain_truth.cases import case
from tests.gain_truth.judging import Tried, tried
from tests.gain_truth.table import HEAD, line, totals
from tests.scenarios.running import ScenarioFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gain_truth", description=__doc__)
    parser.add_argument("-n", type=int, default=20, metavar="N", help="how many scripts (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first one's seed (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="of training under tuimon (default %(default)s)")
    parser.add_argument(
        "--each", type=float, default=4, metavar="SECONDS", help="of each fix, 0: only those kept (default %(default)s)"
    )
    parser.add_argument("--keep", metavar="DIR", help="keep logs and times there, and use those that are there")
    args = parser.parse_args()
    rows: list[Tried] = []
    failed = 0
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(args.seed, args.seed + args.n):
            try:
                found = tried(case(seed), Path(args.keep or temporary), args.seconds, args.each)
            except ScenarioFailed as error:
                failed += 1
                print(f"{seed}: {error}", file=sys.stderr, flush=True)
                continue
            rows += found
            print("\n".join(map(line, found)) or f"{seed:<6}  no fix", flush=True)
    print(totals(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
