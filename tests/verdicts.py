"""``python -m tests.verdicts [--accept]``: the verdicts on all recorded runs, beside the accepted ones.

For each run its phases; for each finding severity, rule and cause, share of the step, places and gains of its fixes.
Headlines and actions are left out: their words may change while the verdict stays.
"""

from __future__ import annotations

import argparse
import difflib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.gpu_simulator import recorded_session
from tests.gpu_simulator.recording import names as recordings
from tests.recorded_logs import LOGS
from tests.truth.pairs import all_sides
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.reading import fold
from tuimon.records import Record
from tuimon.session.session import Session
from tuimon.sources.log.reader import read_log

DATA = Path(__file__).parent / "data"
ACCEPTED = DATA / "verdicts"


class Run(NamedTuple):
    """A recorded or simulated run."""

    name: str
    records: Callable[[], Iterable[Record]]


def corpora() -> dict[str, list[Run]]:
    """The runs of each file of accepted verdicts."""
    return {
        "logs": [Run(path.name.partition(".")[0], lambda path=path: read_log(str(path))) for path in LOGS],
        "pairs": [Run(side.name, side.records) for side in all_sides()],
        "gpu_recordings": [Run(name, lambda name=name: _of_recording(name)) for name in recordings()],
    }


def _of_recording(name: str) -> Iterable[Record]:
    return recorded_session.records(name)


def text_of(runs: Iterable[Run]) -> str:
    """The verdicts on these runs, as they are kept."""
    return "\n".join("\n".join(_lines(run)) + "\n" for run in runs)


def _lines(run: Run) -> Iterator[str]:
    session, findings = fold(run.records())
    yield f"{run.name}: {_phases(session)}"
    for finding in findings:
        yield f"  {_judged(finding)}"
        yield from (f"    {place.file.rsplit('/', 1)[-1]}:{place.line} {place.function}" for place in finding.where)
        yield from (f"    {_gain(fix)}" for fix in finding.fixes)


def _phases(session: Session) -> str:
    """In percent of the step."""
    pid = session.trainer()
    table = session.over("whole").phases(pid) if pid is not None else None
    rows = table.rows if table is not None else ()
    return ", ".join(f"{row.name} {100 * row.share:.0f} %" for row in rows) or "no phases"


def _judged(finding: Finding) -> str:
    name = f"{finding.rule}/{finding.cause}" if finding.cause else finding.rule
    share = "" if finding.share_of_step is None else f", {100 * finding.share_of_step:.0f} % of the step"
    return f"{finding.severity} {name}{share}"


def _gain(fix: Fix) -> str:
    """Estimated, and between which bounds; ``-``: not known."""
    estimated, low, high = (
        "-" if value is None else "inf" if math.isinf(value) else f"{float(f'{value:.2g}'):g}"
        for value in (fix.estimated_speedup, fix.low, fix.high)
    )
    return "fix: gain not known" if estimated == high == "-" else f"fix: {estimated}x ({low} to {high})"


def difference(name: str, text: str) -> str:
    """How the verdicts of a corpus differ from the accepted ones; empty: they do not."""
    path = ACCEPTED / f"{name}.txt"
    accepted = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = difflib.unified_diff(accepted.splitlines(), text.splitlines(), f"{name}: accepted", "now", lineterm="", n=4)
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Show what differs from the accepted verdicts, or accept it."""
    parser = argparse.ArgumentParser(prog="python -m tests.verdicts", description=__doc__)
    parser.add_argument("--accept", action="store_true", help="keep today's verdicts as the accepted ones")
    accept = parser.parse_args(argv).accept
    differs = False
    for name, runs in corpora().items():
        text = text_of(runs)
        found = difference(name, text)
        differs = differs or bool(found)
        print(found or f"{name}: {len(runs)} runs, as accepted")
        if accept and found:
            (ACCEPTED / f"{name}.txt").write_text(text, encoding="utf-8")
    return int(differs and not accept)


if __name__ == "__main__":
    os.environ["TUIMON_MARKERS"] = "0"
    sys.exit(main(sys.argv[1:]))
