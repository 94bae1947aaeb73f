"""``python -m tests.random_loops``: random training scripts under tuimon, as one table against their own truth."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.random_loops.frameworks.catalogue import FRAMEWORKS
from tests.random_loops.frameworks.plan import draw_on
from tests.random_loops.judging import Judged
from tests.random_loops.plan import draw, healthy
from tests.random_loops.running import again, run
from tests.random_loops.table import HEAD, line, totals
from tests.scenarios.running import ScenarioFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_loops", description=__doc__)
    parser.add_argument("-n", type=int, default=20, metavar="N", help="how many loops (default %(default)s)")
    parser.add_argument("--seed", type=int, metavar="S", help="the first one's seed (default: a new one, printed)")
    parser.add_argument(
        "--framework", choices=(*FRAMEWORKS, "any"), help="programs on this one; any: whichever is drawn"
    )
    parser.add_argument("--seconds", type=float, default=12, help="of training per script (default %(default)s)")
    parser.add_argument("--no-gain", action="store_true", help="do not run the scripts without their pieces")
    parser.add_argument("--interval", metavar="SECONDS", help="tuimon's option, for all of them")
    parser.add_argument("--attach", action="store_true", help="attach to a second run of each: the same verdict?")
    parser.add_argument("--inject", action="store_true", help="with --attach: bring the hooks into the second run")
    parser.add_argument("--healthy", action="store_true", help="loops with nothing to complain of")
    parser.add_argument("--keep", metavar="DIR", help="keep scripts and logs there")
    parser.add_argument("--again", metavar="DIR", help="judge the logs kept there once more, running nothing")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) * 1000 if args.seed is None else args.seed
    options = (f"--interval={args.interval}",) if args.interval else ()
    attach = None if not args.attach else ("--inject",) if args.inject else ()
    rows: list[Judged] = []
    print(f"seeds {seed} to {seed + args.n - 1}\n\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(seed, seed + args.n):
            plan = draw_on(args.framework, number) if args.framework else draw(number)
            plan = healthy(plan) if args.healthy else plan
            if args.again:
                rows += filter(None, (again(plan, Path(args.again)),))
                continue
            try:
                folder = Path(args.keep or temporary)
                rows.append(run(plan, args.seconds, folder, options, not args.no_gain, attach))
            except ScenarioFailed as failed:
                print(f"{number}: {failed}", file=sys.stderr, flush=True)
                continue
            print(line(rows[-1]), flush=True)
    if args.again:
        print("\n".join(map(line, rows)))
    print(totals(rows))
    return 0 if len(rows) == args.n else 1


if __name__ == "__main__":
    sys.exit(main())
