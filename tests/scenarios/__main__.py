"""``python -m tests.scenarios [NAME ...] [--short]``: labelled scripts and simulated GPU trainings, as one table.

With ``--inject`` each script runs twice: under ``tuimon run``, and with ``tuimon attach --inject`` coming later.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.scenarios.catalogue import Scenario, catalogue
from tests.scenarios.injected import compare
from tests.scenarios.judging import Judgement, judge
from tests.scenarios.running import ScenarioFailed, recall
from tests.scenarios.streams import STREAMS, judged
from tests.scenarios.table import HEAD, line, totals
from tests.scenarios.trial import FIXED, judged_run

#: Stands for all simulated GPU trainings.
GPU = "gpu"
SHORT = ("photos_without_workers", "checkpoint_every_step", "healthy_function")


def main() -> int:
    known = catalogue()
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*known, GPU])}; default: all")
    parser.add_argument("--short", action="store_true", help="three of them, for a short time")
    parser.add_argument("--seconds", type=float, default=20, help="of training per script (default %(default)s)")
    parser.add_argument("--no-gain", action="store_true", help="do not run the fixed scripts")
    parser.add_argument("--keep", metavar="DIR", help="keep the logs there")
    parser.add_argument("--again", metavar="DIR", help="judge the logs kept there once more, running nothing")
    parser.add_argument("--inject", action="store_true", help="compare the verdicts of run and of attach --inject")
    args = parser.parse_args()
    names = args.names or (SHORT if args.short else [*known, GPU])
    unknown = [name for name in names if name not in (*known, GPU)]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    seconds = 12.0 if args.short else args.seconds
    streams = STREAMS if GPU in names else ()
    names = [name for name in names if name != GPU]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.again or args.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if args.inject:
            return compare([known[name] for name in names], seconds, folder)
        print(HEAD, flush=True)
        if not args.again:
            rows = [row for name in names if (row := _one(known[name], seconds, folder, not args.no_gain)) is not None]
        else:
            kept = ((known[name], recall(known[name], folder)) for name in names)
            rows = [judge(one, found[0], found[1].get(FIXED)) for one, found in kept if found is not None]
            print("\n".join(map(line, rows)))
        simulated = [judged(stream, folder) for stream in streams]
        print("\n".join(map(line, simulated)))
    rows += simulated
    expected = len(names) + len(streams)
    print(totals(rows, expected_rows=expected))
    return 0 if len(rows) == expected and all(row.right and not row.false_alarms for row in rows) else 1


def _one(scenario: Scenario, seconds: float, folder: Path, gain: bool) -> Judgement | None:
    try:
        row = judged_run(scenario, seconds, folder, gain=gain)
    except ScenarioFailed as failed:
        print(f"{scenario.name}: {failed}", file=sys.stderr, flush=True)
        return None
    print(line(row), flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
