"""The ranks of a training, a row each: how far each is, what its step consists of, and who holds the others up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tuimon.records import Process
from tuimon.session.ranks.groups import ranks_of, restarts
from tuimon.session.ranks.row import RankRow, RankState
from tuimon.session.ranks.stats import MainThread, RankStats
from tuimon.session.ranks.waits import RankSplit, RankTimes, split_ranks
from tuimon.session.session import Session, SessionView, once
from tuimon.session.windows import mean_of_known

#: Seconds without a record of a rank, while others have some, from which it is silent: our choice, some windows.
_SILENT_S = 10.0
#: The memory of each process on each GPU, by the GPU's UUID.
_Gpus = Mapping[str, Mapping[int, int | None]]


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
    groups = view.answers.setdefault("trainings", {}) if view.is_whole else view.session.held.groups
    if pid not in groups:
        processes = {process.pid: process for process in view.processes()}
        own = [processes[pid]] if pid in processes else []
        groups[pid] = ranks_of(pid, processes, set(view.session.trainers())) or own
    return groups[pid]


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
    return not any(
        session.ranks.stats(process.pid).has_stepped_since(ended_s) for process in ranks if not process.ended
    )


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
    first = max((session.ranks.stats(process.pid) for process in ranks), key=lambda stats: stats.total)
    behind = {pid: _behind(first, session.ranks.stats(pid)) for pid in times}
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
    stats, sampled, threads = view.session.ranks.stats(pid), view.session.stacks.get(pid), view.process_threads(pid)
    step_ms = times.step_ms if times is not None else None
    measured = times if step_ms else None
    split = split if measured is not None else None
    main = measured.main if measured is not None and split is not None else MainThread()
    memory = _memory_on_gpus(process, group.gpus)
    return RankRow(
        rank=process.rank or 0,
        pid=pid,
        host=view.session.host_of(pid),
        state=_state(group, process, stats),
        restarts=group.restarts.get(process.rank or 0, 0),
        steps=stats.total,
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
        open_phase=stats.open_phase,
        on_gpu=bool(process.gpu_uuids),
        history=stats.history,
    )


def _shares(ms: Mapping[str, float | None], step_ms: float) -> tuple[tuple[str, float], ...]:
    return tuple([(name, (each or 0.0) / step_ms) for name, each in ms.items()])


def _behind(first: RankStats, stats: RankStats) -> int:
    """Windows of ranks end at different moments: a difference that two of them explain is none.

    A difference that steps of the open window explain is none either: that window is no longer than earlier ones. Ranks
    out of focus have windows of 4 s: after one in which few steps were made, the first is soon as many ahead.
    """
    latest, steps = stats.latest, first.total - stats.total
    if latest is None or first.latest is None or steps <= max(1, 2 * latest.steps):
        return 0
    return steps if steps > 2 * stats.steps_within(first.latest.t - latest.t) else 0


def _state(group: _Group, process: Process, stats: RankStats) -> RankState:
    """Lost is what ended while other ranks go on."""
    if process.ended:
        return "ended" if group.is_over else "lost"
    latest = stats.latest
    if latest is None:
        return "starting"
    if stats.main.is_stopped:
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
