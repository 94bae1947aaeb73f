"""Processes that work like a training but show no step, and why."""

from __future__ import annotations

from msgspec import Struct

from tuimon.records import Process
from tuimon.session.session import Session

#: Seconds without any step in the run from which such processes are named: our choice, longer than imports and set-up
#: usually take; a longer set-up is named as well, and the words leave that open.
LONG_S = 60.0
#: Cores (1.0 = one) from which a process works like a training: our choice, far above a launcher or a logger.
BUSY_CORES = 0.5


#: What a process may do for minutes before it trains.
_SETTING_UP = ("importing", "compiling")


class Unseen(Struct, frozen=True, gc=False):
    """One such process."""

    pid: int
    command: str
    cores: float | None  # that it used in its latest window
    on_gpu: bool
    reason: str  # why no step of it can be seen, and what would change that


def unseen_trainings(session: Session) -> list[Unseen]:
    """The busiest first; none as long as any process of the run makes steps, and in the first minute."""
    if session.start_s is None or session.now_s - session.start_s < LONG_S:
        return []
    known, now = session.processes(), session.over("recent")
    if any(now.step_totals(process.pid).count for process in known):  # so it is nearly always, and takes no time
        return []
    if any(now.phases(process.pid) is not None for process in known):
        return []
    on_gpu = {pid for row in now.gpus() for pid in row.latest.pids}
    found = [_unseen(session, process, process.pid in on_gpu) for process in known if process.role != "worker"]
    return sorted((each for each in found if each is not None), key=lambda each: -(each.cores or 0.0))


def _unseen(session: Session, process: Process, on_gpu: bool) -> Unseen | None:
    threads = session.threads.of(process.pid)
    cores = threads.cpu_ratio if threads is not None else None
    sampled = session.samples.get(process.pid)
    doing = sampled.set_up.doing if sampled is not None else None
    if doing is not None and doing.words.startswith(_SETTING_UP):
        return None
    if not on_gpu and (cores is None or cores < BUSY_CORES):
        return None
    return Unseen(process.pid, " ".join(process.command), cores, on_gpu, _reason(process))


def _reason(process: Process) -> str:
    if process.markers:
        return (
            "no backward or optimizer step of torch's Python interface has run yet; a loop in C++, over RPC or in a"
            " captured graph becomes visible by tuimon.step() at the end of each step"
        )
    if process.python is None and process.markers_reason is None:
        return "it is not a Python program, so nothing can mark its steps; its threads and GPU are shown"
    reason = process.markers_reason or "no markers come from it"
    return f"{reason}; nothing marks its steps, and its stack samples show no training loop"
