"""The trainings on this machine, as a list: of ``tuimon ps``, and of ``tuimon attach`` without a pid."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tuimon.launch.attached import Candidate, user_name
from tuimon.proc import procfs
from tuimon.proc.processes import start_unix_s
from tuimon.proc.ring_facts import RingFacts
from tuimon.sources.markers.follower import steps_of
from tuimon.views.format import ABSENT, duration, number, percent, plain, shorten

#: Characters of a folder's path; of a longer one, the end is shown.
_FOLDER_WIDTH = 24


class ListedProcess(NamedTuple):
    """A process in the list; the fields have the same names in JSON."""

    pid: int
    user: str
    rank: int | None
    gpus: list[str]  # UUIDs, as the process itself reports
    cpu_ratio: float | None
    age_s: float | None  # since it was started
    steps_per_s: float | None  # None if there are no markers
    has_stepped: bool | None  # None if there are no markers
    markers: bool
    folder: str | None  # its working directory
    run: str | None
    command: list[str]


def rows(found: Iterable[Candidate]) -> list[ListedProcess]:
    """A row for each process, trainings that make steps first; CPU is measured over 0.2 s.

    Processes that end during the measurement are left out.
    """
    before = [(candidate, procfs.read_process_stat(candidate.pid), time.monotonic()) for candidate in found]
    if before:
        time.sleep(0.2)  # seconds over which CPU is measured
    listed = []
    for candidate, then, then_s in before:
        now = procfs.read_process_stat(candidate.pid)
        if then is not None and now is not None and now.state not in "ZX":
            listed.append(_row(candidate, (now.cpu_s - then.cpu_s) / (time.monotonic() - then_s)))
    return sorted_by_steps(listed)


def sorted_by_steps(listed: Sequence[ListedProcess]) -> list[ListedProcess]:
    """The rows, the runs with the most steps per second first; processes of one run that make steps stay together."""
    fastest: dict[str | int, float] = {}
    for row in listed:
        run = row.run or row.pid
        fastest[run] = max(fastest.get(run, 0.0), row.steps_per_s or 0.0)
    return sorted(listed, key=lambda row: (row.steps_per_s is None, not row.has_stepped, -fastest[row.run or row.pid]))


def helpers(listed: Iterable[ListedProcess]) -> set[int]:
    """The pids of processes that have made no step although others of their run have."""
    runs = {row.run for row in listed if row.has_stepped and row.run is not None}
    return {row.pid for row in listed if row.has_stepped is False and row.run in runs}


def _row(candidate: Candidate, cpu_ratio: float) -> ListedProcess:
    facts = candidate.facts or RingFacts()
    steps, folder = steps_of(candidate.pid) if candidate.facts is not None else None, None
    with contextlib.suppress(OSError):
        folder = os.readlink(f"/proc/{candidate.pid}/cwd")
    return ListedProcess(
        pid=candidate.pid,
        user=user_name(os.getuid()),  # candidates are of this user alone
        rank=facts.rank,
        gpus=list(facts.gpu_uuids),
        cpu_ratio=cpu_ratio,
        age_s=max(0.0, time.time() - start_unix_s(candidate.start_ticks)),
        steps_per_s=steps.per_s if steps is not None else None,
        has_stepped=steps.has_stepped if steps is not None else None,
        folder=folder,
        markers=candidate.facts is not None,
        run=facts.run,
        command=candidate.command,
    )


def trainings_table(listed: Sequence[ListedProcess], *, everything: bool = False) -> list[str]:
    """The list as lines of text, without helpers unless ``everything`` is wanted."""
    hidden = set() if everything else helpers(listed)
    if not listed:
        return ["No training runs: no process of yours has torch loaded, or markers."]
    width = max(4, *(len(plain(row.user)) for row in listed))
    lines = [
        f"{'PID':>8}  {'USER':<{width}}  {'RANK':>4}  {'GPUS':>4}  {'CPU':>6}  {'AGE':>6}  {'STEPS/S':>7}  "
        f"{'MARKERS':<7}  {'FOLDER':<{_FOLDER_WIDTH}}  COMMAND"
    ]
    for row in listed:
        if row.pid in hidden:
            continue
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
    if hidden:
        lines.append(f"{len(hidden)} more of these runs without a step: tuimon ps --all")
    return lines
