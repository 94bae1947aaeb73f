"""The ranks of a training, a row each: how far each is, what its step consists of, and who holds the others up.

And the trainings of a run: several may run side by side, or one after the other, each of one process or of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.records import Place, Process
from tuimon.session.processes import LAST_MOMENT_S, ranks_of, restarts
from tuimon.session.ranks import RankSplit, RankTimes, split_ranks
from tuimon.session.series import mean_of_known
from tuimon.session.session import Session, SessionView, once
from tuimon.session.step_sums import StepStretch
from tuimon.session.steps import StepStats
from tuimon.session.threads import MainThread

#: Seconds without a record of a rank, while others have some, from which it is silent: our choice, some windows.
_SILENT_S = 10.0
#: The memory of each process on each GPU, by the GPU's UUID.
_Gpus = Mapping[str, Mapping[int, int | None]]


def _no_windows(last: int) -> Sequence[StepStretch]:
    return ()


RankState = Literal["starting", "training", "stopped", "silent", "lost", "ended"]


class RankRow(NamedTuple):
    """One rank over the last 30 s; None where not measured. ``~``: estimates."""

    rank: int
    pid: int
    host: str | None
    state: RankState
    restarts: int
    steps: int  # since it began
    behind: int  # steps behind the first
    step_ms: float | None = None
    phases: tuple[tuple[str, float], ...] = ()  # name, share of the step
    wait_ms: float | None = None  # ~ in collectives, of a step
    waits: tuple[tuple[str, float], ...] = ()  # ~ phase, share of the step that it waits there
    late_ms: float | None = None  # ~ by how much its own work is longer than the others'
    excess: tuple[tuple[str, float], ...] = ()  # ~ that by phase, in ms
    gpu_ratio: float | None = None  # utilisation of its GPUs over the steps in focus; only ``with_utilisation``
    memory_bytes: int | None = None  # on its GPU; without one, resident
    place: Place | None = None  # the innermost user line of its latest samples
    gc_ms: float = 0.0  # of a step, in the garbage collector
    stopped_ratio: float = 0.0  # share of time that its process was stopped
    cpu_ratio: float | None = None  # of its main thread
    delay_ratio: float | None = None  # share of time that its main thread waited for a core
    open_phase: str | None = None
    on_gpu: bool = False
    history: Callable[[int], Sequence[StepStretch]] = _no_windows  # its last windows

    @property
    def wait_ratio(self) -> float | None:
        """~ Share of the step that it waits in collectives."""
        return self.wait_ms / self.step_ms if self.wait_ms is not None and self.step_ms else None

    @property
    def late_ratio(self) -> float | None:
        """~ Share of the step by which it holds the others up."""
        return self.late_ms / self.step_ms if self.late_ms is not None and self.step_ms else None


class _Group(Struct, frozen=True, gc=False):
    """The data that the rows of one training share."""

    view: SessionView
    gpus: _Gpus
    behind: Mapping[int, int]  # by pid, steps behind the rank that has made most
    is_over: bool
    restarts: Mapping[int, int]  # by rank


@once
def rank_rows(view: SessionView) -> list[RankRow]:
    """The ranks of the training in focus, by rank; none where it is no training of ranks."""
    focus = view.session.trainer()
    ranks = training_of(view, focus) if focus is not None else []
    return rows_of(view, ranks) if len(ranks) > 1 else []


def with_utilisation(view: SessionView, rows: Sequence[RankRow]) -> list[RankRow]:
    """The ranks with the mean utilisation of their GPUs, for people: rules need none, and it takes 0.2 ms a GPU."""
    uuids = {row.pid: process.gpu_uuids for row in rows if (process := view.process(row.pid)) is not None}
    utils = view.utilisations({uuid for own in uuids.values() for uuid in own})
    return [row._replace(gpu_ratio=mean_of_known(utils.get(uuid) for uuid in uuids.get(row.pid, ()))) for row in rows]


def training_of(view: SessionView, pid: int) -> list[Process]:
    """The processes of a training, by rank; without ranks, the process alone."""
    session, groups = view.session, view.session.held.groups
    if pid not in groups:
        known = session.run_processes.known
        ranks = ranks_of(pid, known, set(session.trainers()))
        groups[pid] = [process.pid for process in ranks] or [pid]
    return [process for each in groups[pid] if (process := view.process(each)) is not None]


def ranks_in_focus(session: Session) -> list[Process]:
    """The processes of the training in focus, by rank; empty before there is one."""
    focus = session.trainer()
    return training_of(session.over("recent"), focus) if focus is not None else []


def ranks_end(session: Session) -> bool:
    """True if a rank of the training in focus has ended, and no other has begun and ended a step since.

    Then the ranks end one after another: what is left of them is no training that can be compared or judged.
    """
    ranks = ranks_in_focus(session)
    ended_s = max((process.t for process in ranks if process.ended), default=None)
    if ended_s is None or len(ranks) < 2:
        return False
    live = [stats for rank in ranks if not rank.ended and (stats := session.step_stats.get(rank.pid)) is not None]
    return not any(stats.has_stepped_since(ended_s) for stats in live)


def superseded(session: Session) -> set[int]:
    """The processes of the training in focus whose ranks others have taken since: of earlier starts."""
    ranks = ranks_in_focus(session)
    newest = {(process.ppid, process.rank): process.pid for process in ranks}
    return {
        process.pid
        for process in session.processes()
        if newest.get((process.ppid, process.rank), process.pid) != process.pid and not process.serves
    }


def rows_of(view: SessionView, ranks: Sequence[Process]) -> list[RankRow]:
    """Processes compared with each other; one alone is neither late nor behind."""
    session = view.session
    times = {process.pid: view.rank_times(process.pid) for process in ranks}
    stepping = {pid: stats for pid in times if (stats := session.step_stats.get(pid)) is not None}
    first = max(stepping.values(), key=lambda stats: stats.total, default=None)
    behind = {pid: _behind(first, stepping.get(pid)) for pid in times}
    splits = _splits(times, behind)
    group = _Group(
        view,
        _gpus(session),
        behind=behind,
        is_over=session.exit is not None or all(process.ended for process in ranks),
        restarts=restarts(ranks, view.processes()),
    )
    return [_row(group, process, times[process.pid], splits.get(process.pid)) for process in ranks]


def _splits(times: Mapping[int, RankTimes | None], behind: Mapping[int, int]) -> dict[int, RankSplit]:
    """Splits of the ranks that go on together: one at the end of its data waits for the others outside steps."""
    known = {pid: measured for pid, measured in times.items() if measured is not None and not behind[pid]}
    return dict(zip(known, split_ranks(list(known.values())), strict=True))


def _row(group: _Group, process: Process, times: RankTimes | None, split: RankSplit | None) -> RankRow:
    view, pid = group.view, process.pid
    session, threads = view.session, view.process_threads(pid)
    stats, sampled = session.step_stats.get(pid), session.stacks.get(pid)
    step_ms = times.step_ms if times is not None else None
    measured = times if step_ms else None
    split = split if measured is not None else None
    main = measured.main if measured is not None and split is not None else MainThread()
    memory = _memory_on_gpus(process, group.gpus)
    return RankRow(
        rank=process.rank or 0,
        pid=pid,
        host=session.host_of(pid),
        state=_state(group, process, stats),
        restarts=group.restarts.get(process.rank or 0, 0),
        steps=stats.total if stats is not None else 0,
        behind=group.behind[pid],
        step_ms=step_ms,
        phases=_shares(measured.ms, step_ms) if measured is not None and step_ms else (),
        wait_ms=split.waits_ms if split is not None else None,
        waits=_shares(split.wait_ms, step_ms) if split is not None and step_ms else (),
        late_ms=split.late_ms if split is not None else None,
        excess=tuple(split.excess_ms.items()) if split is not None else (),
        memory_bytes=memory if memory is not None else (threads.rss_bytes or None) if threads else None,
        place=sampled.threads.place_of(sampled.tid) if sampled is not None else None,
        gc_ms=measured.gc_ms if measured is not None and split is not None else 0.0,
        stopped_ratio=main.stopped_ratio,
        cpu_ratio=main.cpu_ratio,
        delay_ratio=main.delay_ratio,
        open_phase=stats.latest.open_phase if stats is not None and stats.latest is not None else None,
        on_gpu=bool(process.gpu_uuids),
        history=stats.windows if stats is not None else _no_windows,
    )


def _shares(ms: Mapping[str, float | None], step_ms: float) -> tuple[tuple[str, float], ...]:
    return tuple([(name, (each or 0.0) / step_ms) for name, each in ms.items()])


def _behind(first: StepStats | None, stats: StepStats | None) -> int:
    """Windows of ranks end at different moments: a difference that two of them explain is none.

    A difference that steps of the open window explain is none either: that window is no longer than earlier ones. Ranks
    out of focus have windows of 4 s: after one in which few steps were made, the first is soon as many ahead.
    """
    if first is None or first.latest is None or stats is None or stats.latest is None:
        return 0
    latest, steps = stats.latest, first.total - stats.total
    if steps <= max(1, 2 * latest.count):
        return 0
    return steps if steps > 2 * stats.steps_within(first.latest.t - latest.t) else 0


def _state(group: _Group, process: Process, stats: StepStats | None) -> RankState:
    """Lost is what ended while other ranks go on."""
    if process.ended:
        return "ended" if group.is_over else "lost"
    latest = stats.latest if stats is not None else None
    if latest is None:
        return "starting"
    if group.view.session.threads.is_stopped(process.pid):
        return "stopped"
    silent = group.view.now_s - latest.t > max(_SILENT_S, 3 * latest.window_s)
    return "silent" if silent and not group.is_over else "training"


def _gpus(session: Session) -> _Gpus:
    return {
        gpu.uuid: {process.pid: process.memory_bytes for process in gpu.processes}
        for gpu in session.nodes.latest_gpus()
    }


def _memory_on_gpus(process: Process, gpus: _Gpus) -> int | None:
    own = (gpus[uuid] for uuid in process.gpu_uuids if uuid in gpus)
    held = [memory for processes in own if (memory := processes.get(process.pid)) is not None]
    return sum(held) if held else None


# -- the trainings of a run


class Which(NamedTuple):
    """Which training the process in focus belongs to, and how many go on; numbers count from 1."""

    ranks: int = 1  # of that training
    number: int = 1
    trainings: int = 1

    @property
    def text(self) -> str:
        """``4 ranks``, ``training 2 of 4``, ``2 ranks, training 1 of 2``; empty for the only process."""
        return self._joined(f"{self.ranks} ranks")

    def text_of_rank(self, rank: int | None) -> str:
        """``rank 3 of 4``, ``training 2 of 4``, ``rank 0 of 2, training 1 of 2``; empty for the only process."""
        return self._joined(f"rank {rank} of {self.ranks}")

    def _joined(self, ranks: str) -> str:
        training = f"training {self.number} of {self.trainings}" if self.trainings > 1 else ""
        return ", ".join(filter(None, (ranks if self.ranks > 1 else "", training)))


class TrainingRow(NamedTuple):
    """One training; ``first`` is its first rank that has not ended, or its only process."""

    number: int
    ranks: int
    command: tuple[str, ...]
    first: RankRow
    in_focus: bool


def which_training(session: Session) -> Which:
    """The training in focus."""
    found = _trainings(session)
    return Which(max(1, len(ranks_in_focus(session))), _index(session.trainer(), found) + 1, max(1, len(found)))


def training_rows(session: Session) -> list[TrainingRow]:
    """All trainings that go on, as they began; once all have ended, those that ended last."""
    found = _trainings(session)
    focus = _index(session.trainer(), found)
    rows = []
    for at, members in enumerate(found):
        first = next((process for process in members if not process.ended), members[0])
        (row,) = rows_of(session.over("recent"), [first])
        rows.append(TrainingRow(at + 1, len(members), tuple(first.command), row, in_focus=at == focus))
    return rows


def training_numbers(session: Session) -> dict[int, int]:
    """The number of the training that each process belongs to, by pid; empty where there is one."""
    found = _trainings(session)
    if len(found) < 2:
        return {}
    return {process.pid: at + 1 for at, members in enumerate(found) for process in members}


def _trainings(session: Session) -> list[list[Process]]:
    """The processes of each, by rank."""
    held = session.held.trainings
    if held is None:
        held = session.held.trainings = _grouped(session, session.trainers())
    return held


def _grouped(session: Session, training: Sequence[int]) -> list[list[Process]]:
    found: list[list[Process]] = []
    seen: set[int] = set()
    for pid in training:
        members = training_of(session.over("recent"), pid) if pid not in seen else []
        if members and not seen.intersection(process.pid for process in members):
            found.append(members)  # else an earlier start of the same ranks
        seen.update((pid, *(process.pid for process in members)))
    return sorted(_current(found), key=lambda members: (min(p.start_unix_s for p in members), members[0].pid))


def _current(found: Sequence[list[Process]]) -> list[list[Process]]:
    """The trainings that go on; without any, those that ended last."""
    live = [members for members in found if not all(process.ended for process in members)]
    if live or not found:
        return live
    ends_s = [max(process.t for process in members) for members in found]
    return [members for members, end_s in zip(found, ends_s, strict=True) if end_s >= max(ends_s) - LAST_MOMENT_S]


def _index(focus: int | None, found: Sequence[Sequence[Process]]) -> int:
    return next((at for at, members in enumerate(found) if any(p.pid == focus for p in members)), 0)
