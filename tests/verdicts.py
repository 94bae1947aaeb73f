"""``python -m tests.verdicts [--accept]``: what tuimon says of all recorded runs, beside what was accepted.

Verdicts: for each run its phases; for each finding severity, rule and cause, share of the step, places and gains of its
fixes, without headlines and actions, whose words may change while the verdict stays. Reports: as text, and as JSON.
Screens: the board and the findings of a dozen runs at three sizes.
"""

import argparse
import difflib
import gzip
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests import printed
from tests.altered import ALTERED, RANKS, altered
from tests.gpu_simulator import recorded_session
from tests.gpu_simulator.recording import names as recordings
from tests.recorded_logs import LOGS
from tests.truth.pairs import all_sides
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.verdicts import Verdicts, fold
from tuimon.records import Record
from tuimon.session.session import Session
from tuimon.sources.log.source import read_records
from tuimon.views.report_types import Report

DATA = Path(__file__).parent / "data"
ACCEPTED = DATA / "verdicts"


class Run(NamedTuple):
    """A recorded or simulated run."""

    name: str
    records: Callable[[], Iterable[Record]]


def corpora() -> dict[str, list[Run]]:
    """The runs of each file of accepted verdicts."""
    return {
        "altered": [Run(name, lambda name=name: altered(name)) for name in (*ALTERED, *RANKS)],
        "logs": [Run(path.name.partition(".")[0], lambda path=path: read_records(str(path))) for path in LOGS],
        "pairs": [Run(side.name, side.records) for side in all_sides()],
        "gpu_recordings": [Run(name, lambda name=name: recorded_session.records(name)) for name in recordings()],
    }


class Said(NamedTuple):
    """A part of what tuimon says of recorded runs, and the file in which the accepted text is kept."""

    file: str
    text: str


def said(see: Callable[[str, Session], None] = lambda run, session: None) -> Iterator[Said]:
    """All parts, corpus by corpus; ``see`` is given each run and its session."""
    for name, runs in corpora().items():
        yield from of_corpus(name, runs, see)
    yield Said("screens.txt", _joined(printed.screens()))


def of_corpus(
    name: str, runs: Iterable[Run], see: Callable[[str, Session], None] = lambda run, session: None
) -> Iterator[Said]:
    """Verdicts and reports of a corpus."""
    verdicts_text, texts, jsons = [], [], []
    for run in runs:
        verdicts = Verdicts()
        session, findings = fold(run.records(), verdicts)
        see(f"{name}/{run.name}", session)
        verdicts_text.append("\n".join(_lines(run.name, session, findings)) + "\n")
        text, json = printed.reports(session, findings, verdicts.changes)
        texts.append((run.name, text))
        jsons.append((run.name, json))
    yield Said(f"{name}.txt", "\n".join(verdicts_text))
    yield Said(f"{name}.reports.txt", _joined(texts))
    yield Said(f"{name}.json.gz", _joined(jsons))


def _joined(named: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"== {name} ==\n{text.rstrip()}\n" for name, text in named)


def _lines(name: str, session: Session, findings: Iterable[Finding]) -> Iterator[str]:
    table = session.over("whole").of(session.trainer()).phases
    phases = ", ".join(f"{row.name} {100 * row.share:.0f} %" for row in table.rows)
    yield f"{name}: {phases or 'no phases'}"
    for finding in findings:
        rule = f"{finding.rule}/{finding.cause}" if finding.cause else finding.rule
        share = "" if finding.share_of_step is None else f", {100 * finding.share_of_step:.0f} % of the step"
        yield f"  {finding.severity} {rule}{share}"
        yield from (f"    {place.file.rsplit('/', 1)[-1]}:{place.line} {place.function}" for place in finding.where)
        yield from (f"    {_gain(fix)}" for fix in finding.fixes)


def _gain(fix: Fix) -> str:
    """Estimated, and between which bounds; ``-``: not known."""
    low, high = (None, None) if fix.gain is None else (fix.least, fix.gain.high if fix.gain.high > 1.0 else None)
    estimated, low, high = (
        "-" if value is None else "inf" if math.isinf(value) else f"{float(f'{value:.2g}'):g}"
        for value in (fix.estimated_speedup, low, high)
    )
    return "fix: gain not known" if estimated == high == "-" else f"fix: {estimated}x ({low} to {high})"


def difference(said: Said) -> str:
    """How a part differs from the accepted one; empty: it does not."""
    lines = difflib.unified_diff(
        accepted(said.file).splitlines(), said.text.splitlines(), f"{said.file}: accepted", "now", lineterm="", n=4
    )
    return "\n".join(lines)


def accepted(file: str) -> str:
    path = ACCEPTED / file
    if not path.exists():
        return ""
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")


def accepted_reports(corpus: str) -> dict[str, Report]:
    """The accepted report of each run of a corpus, by its name; numbers have four digits."""
    parts = re.split(r"^== (.*) ==\n", accepted(f"{corpus}.json.gz"), flags=re.MULTILINE)
    named = zip(parts[1::2], parts[2::2], strict=True)
    return {name: msgspec.json.decode(text, type=Report) for name, text in named}


def main(argv: list[str]) -> int:
    """Show what differs from what was accepted, or accept it."""
    parser = argparse.ArgumentParser(prog="python -m tests.verdicts", description=__doc__)
    parser.add_argument("--accept", action="store_true", help="keep what is said today as accepted")
    accept = parser.parse_args(argv).accept
    differs = False
    for part in said():
        found = difference(part)
        differs = differs or bool(found)
        print(found or f"{part.file}: as accepted")
        if accept and found:
            content = part.text.encode()
            packed = gzip.compress(content, mtime=0) if part.file.endswith(".gz") else content
            (ACCEPTED / part.file).write_bytes(packed)
    return int(differs and not accept)


if __name__ == "__main__":
    os.environ["TUIMON_MARKERS"] = "0"
    sys.exit(main(sys.argv[1:]))
