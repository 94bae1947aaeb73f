"""``tuimon ps``: the trainings on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import psutil

from tuimon.cli.options import parser_of
from tuimon.launch.candidates import Candidate, find_candidates
from tuimon.proc.ring_facts import RingFacts
from tuimon.views.format import ABSENT, percent, plain, shorten
from tuimon.views.json_text import json_text

_DOC = "List this user's Python processes that have torch loaded, or markers."

#: CPU is measured over this long.
CPU_S = 0.2


class Row(NamedTuple):
    """One process as it is listed; the names are those of the JSON."""

    pid: int
    user: str
    rank: int | None
    gpus: list[str]  # UUIDs, as the process itself reports
    cpu_ratio: float | None
    markers: bool
    run: str | None
    command: list[str]


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    parser = parser_of("ps", _DOC)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parsed = parser.parse_args(argv)
    found = find_candidates()
    if parsed.format == "json":
        content = [row._asdict() for row in rows(found)]
        sys.stdout.write(json_text(content, indent=2))
    else:
        sys.stdout.write("\n".join(table(found)) + "\n")
    return 0


def rows(found: Iterable[Candidate]) -> list[Row]:
    """What is known of each; CPU over 0.2 s. Those that end meanwhile are left out."""
    measured = []
    for candidate in found:
        try:
            process = psutil.Process(candidate.pid)
            process.cpu_percent()
        except psutil.Error:
            continue
        measured.append((candidate, process))
    if measured:
        time.sleep(CPU_S)
    listed = []
    for candidate, process in measured:
        try:
            cpu_ratio: float | None = process.cpu_percent() / 100
            user = process.username()
        except psutil.Error:
            continue
        listed.append(_row(candidate, user, cpu_ratio))
    return listed


def _row(candidate: Candidate, user: str, cpu_ratio: float | None) -> Row:
    facts = candidate.facts or RingFacts()
    return Row(
        pid=candidate.pid,
        user=user,
        rank=facts.rank,
        gpus=list(facts.gpu_uuids),
        cpu_ratio=cpu_ratio,
        markers=candidate.facts is not None,
        run=facts.run,
        command=candidate.command,
    )


def table(found: Iterable[Candidate]) -> list[str]:
    """The list as lines of text."""
    listed = rows(found)
    if not listed:
        return ["No training runs: no process of yours has torch loaded, or markers."]
    width = max(4, *(len(plain(row.user)) for row in listed))
    lines = [f"{'PID':>8}  {'USER':<{width}}  {'RANK':>4}  {'GPUS':>4}  {'CPU':>6}  {'MARKERS':<7}  COMMAND"]
    for row in listed:
        rank = ABSENT if row.rank is None else str(row.rank)
        gpus = str(len(row.gpus)) if row.gpus else ABSENT
        lines.append(
            f"{row.pid:>8}  {plain(row.user):<{width}}  {rank:>4}  {gpus:>4}  {percent(row.cpu_ratio):>6}  "
            f"{'yes' if row.markers else 'no':<7}  {shorten(plain(' '.join(row.command)), 100)}"
        )
    return lines
