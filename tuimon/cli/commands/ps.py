"""``tuimon ps``: the trainings on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import psutil

from tuimon.cli.options import parser_of
from tuimon.launch.candidates import Candidate, find_candidates
from tuimon.proc.processes import start_unix_s
from tuimon.proc.ring_facts import RingFacts
from tuimon.sources.markers.step_rate import steps_per_s
from tuimon.views.format import ABSENT, duration, number, percent, plain, shorten
from tuimon.views.json_text import json_text

_DOC = "List this user's Python processes that have torch loaded, or markers."

#: CPU is measured over this long.
CPU_S = 0.2
#: A longer path is shown by its end.
_FOLDER_WIDTH = 24


class Row(NamedTuple):
    """One process as it is listed; the names are those of the JSON."""

    pid: int
    user: str
    rank: int | None
    gpus: list[str]  # UUIDs, as the process itself reports
    cpu_ratio: float | None
    age_s: float | None  # since it was started
    steps_per_s: float | None  # None without markers
    markers: bool
    folder: str | None  # its working directory
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
    """The known facts of each; CPU over 0.2 s. Processes that end meanwhile are left out."""
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
        age_s=max(0.0, time.time() - start_unix_s(candidate.start_ticks)),
        steps_per_s=None if candidate.facts is None else steps_per_s(candidate.pid),
        folder=_folder(candidate.pid),
        markers=candidate.facts is not None,
        run=facts.run,
        command=candidate.command,
    )


def _folder(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def table(found: Iterable[Candidate]) -> list[str]:
    """The list as lines of text."""
    listed = rows(found)
    if not listed:
        return ["No training runs: no process of yours has torch loaded, or markers."]
    width = max(4, *(len(plain(row.user)) for row in listed))
    lines = [
        f"{'PID':>8}  {'USER':<{width}}  {'RANK':>4}  {'GPUS':>4}  {'CPU':>6}  {'AGE':>6}  {'STEPS/S':>7}  "
        f"{'MARKERS':<7}  {'FOLDER':<{_FOLDER_WIDTH}}  COMMAND"
    ]
    for row in listed:
        rank = ABSENT if row.rank is None else str(row.rank)
        gpus = str(len(row.gpus)) if row.gpus else ABSENT
        folder = plain(row.folder) if row.folder is not None else ABSENT
        if len(folder) > _FOLDER_WIDTH:
            folder = "…" + folder[1 - _FOLDER_WIDTH :]
        lines.append(
            f"{row.pid:>8}  {plain(row.user):<{width}}  {rank:>4}  {gpus:>4}  {percent(row.cpu_ratio):>6}  "
            f"{duration(row.age_s):>6}  {number(row.steps_per_s):>7}  {'yes' if row.markers else 'no':<7}  "
            f"{folder:<{_FOLDER_WIDTH}}  {shorten(plain(' '.join(row.command)), 100)}"
        )
    return lines
