"""``python -m tests.wild [NAME ...]``: programs on public frameworks, healthy and slowed, as one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.scenarios.attaching import attached_verdict
from tests.scenarios.judging import Judgement
from tests.scenarios.running import ScenarioFailed
from tests.scenarios.table import HEAD, line, totals
from tests.scenarios.trial import judged_run
from tests.scenarios.verdict import Verdict, attached_text, attached_totals
from tests.wild.catalogue import catalogue


def main() -> int:
    known = catalogue()
    parser = argparse.ArgumentParser(prog="python -m tests.wild", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all whose framework is installed")
    parser.add_argument("--seconds", type=float, default=12, help="of training per program (default %(default)s)")
    parser.add_argument("--interval", metavar="SECONDS", help="tuimon's option, for all of them")
    parser.add_argument("--no-gain", action="store_true", help="do not time the programs without their slow work")
    parser.add_argument("--attach", action="store_true", help="attach to a second run of each: the same verdict?")
    parser.add_argument("--inject", action="store_true", help="with --attach: bring the hooks into the second run")
    parser.add_argument("--keep", metavar="DIR", help="keep the logs there")
    args = parser.parse_args()
    if unknown := sorted(set(args.names) - set(known)):
        parser.error(f"unknown: {', '.join(unknown)}")
    chosen = [known[name] for name in args.names or known]
    if missing := sorted({program.package for program in chosen if not program.installed}):
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
    chosen = [program for program in chosen if program.installed]
    options = (f"--interval={args.interval}",) if args.interval else ()
    coming = (*options, "--inject") if args.inject else options
    rows: list[Judgement] = []
    attached: list[Verdict | None] = []
    print(f"{HEAD}  attached", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for program in chosen:
            try:
                rows.append(judged_run(program, args.seconds, folder, gain=not args.no_gain, options=options))
                attached.append(attached_verdict(program, args.seconds, folder, coming) if args.attach else None)
            except ScenarioFailed as failed:
                del rows[len(attached) :]
                print(f"{program.name}: {failed}", file=sys.stderr, flush=True)
                continue
            print(f"{line(rows[-1])}  {attached_text(rows[-1].verdict, attached[-1])}", flush=True)
    print(totals(rows, expected_rows=len(chosen)))
    print(attached_totals([(row.verdict, of) for row, of in zip(rows, attached, strict=True)]))
    return 0 if len(rows) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
