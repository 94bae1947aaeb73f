"""The ranks of a training: the progress of each, the parts of its step, and its waits for the others.

And the trainings of a run: several may run side by side or one after another, each with one process or several ranks.

Markers measure how long a phase is. The part of it spent waiting for other ranks is estimated in two ways:

- In Python, stacks show it: a sample inside ``all_reduce``, ``barrier``, ``Work.wait``.
- DistributedDataParallel waits in C++, at the end of ``backward``, where no Python frame shows it. There the
  training thread sleeps: the wait is the time in which it neither runs nor is ready to run, less its waits elsewhere
  in the stacks.

Three ranks, the third of which takes 20 ms longer in forward (times in ms)::

    rank  forward  backward  of that asleep  own time
    0           5        40              25        20
    1           5        40              25        20
    2          25        20               5        40    holds the others up by 20
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from tuimon.records import Place, Process
from tuimon.session.processes import LAST_MOMENT_S, superseded
from tuimon.session.series import mean_of_known
from tuimon.session.session import ProcessView, Session, SessionView
from tuimon.session.stacks.activity import WAITS, Activity
from tuimon.session.steps import StepStats, StepStretch
from tuimon.session.tables import cached_query
from tuimon.session.threads import TrainingThread
from tuimon.threshold import REPORTED

#: Activities in which a thread sleeps, without waits for ranks. Files and the network may keep it busy: saving is
#: mostly work.
_WAITS = WAITS - {"ranks", "io", "network"}
#: Weight, in samples, of all ranks' mean in each rank's share: few samples are of one rank, and all run the same code.
_PRIOR_SAMPLES = 2.0
#: Least samples in collectives, of all ranks together, in a phase: with fewer, the error is over half of the share.
_MIN_SAMPLES = 3


class RankTimes(Struct, frozen=True, gc=False):
    """Measurements of one rank over some steps."""

    ms: Mapping[str, float]  # of a step, by phase; if its length is unknown, shares of the step
    thread: TrainingThread = TrainingThread()
    samples: Mapping[tuple[str, Activity], int] = {}  # of the training thread, by phase and activity
    on_gpu: bool = False  # then the CPU does not wait for collectives, and spins while it waits for the GPU

    @property
    def step_ms(self) -> float:
        """All phases."""
        return sum(self.ms.values())

    def shares(self, ms: Mapping[str, float]) -> dict[str, float]:
        """Times by phase as shares of its step."""
        step_ms = self.step_ms
        return {phase: phase_ms / step_ms for phase, phase_ms in ms.items()}

    def count(self, *activities: Activity, phases: Container[str] | None = None) -> int:
        """The number of its samples in these activities (none given: in all) and these phases (None: in all)."""
        return sum(
            n
            for (phase, activity), n in self.samples.items()
            if (not activities or activity in activities) and (phases is None or phase in phases)
        )


class RankSplit(NamedTuple):
    """A rank's waits for the others, and how much longer its own work is than theirs: by phase, in ms per step."""

    waits: Mapping[str, float]  # in collectives; lacks backward if that is unknown
    excess: Mapping[str, float]  # its own work beyond the median of the other ranks; backward only if known


def split_ranks(ranks: Sequence[RankTimes]) -> list[RankSplit]:
    """Divides each rank's time into own work and waiting.

    The excess of a rank includes phases that only others have: samples may count work as data in one rank and as side
    work in another. Sleep that no stack shows counts as waiting in backward. So a shorter own backward does not count;
    a longer one does, beyond the error of that sleep.
    """
    shared = _mean_collective_shares(ranks)
    all_waits = [_waits(rank, shared) for rank in ranks]
    parts = [
        ({phase: ms - waits.get(phase, 0.0) for phase, ms in rank.ms.items()}, waits)
        for rank, waits in zip(ranks, all_waits, strict=True)
    ]
    phases = dict.fromkeys(phase for rank in ranks for phase in rank.ms)
    typical = {phase: _median_of_others([own.get(phase, 0.0) for own, _ in parts]) for phase in phases}
    backward = _median_of_others([own["backward"] for own, waits in parts if "backward" in waits])
    errors_ms = [_asleep_error_ms(rank) for rank in ranks]
    typical_ms = _median_of_others(errors_ms)
    splits = []
    for (own, waits), error_ms in zip(parts, errors_ms, strict=True):
        excess = {phase: own.get(phase, 0.0) - others(own.get(phase, 0.0)) for phase, others in typical.items()}
        if "backward" in own:
            longer_ms = own["backward"] - backward(own["backward"]) if "backward" in waits else 0.0
            excess["backward"] = max(0.0, longer_ms - error_ms - typical_ms(error_ms))
        splits.append(RankSplit(waits, excess))
    return splits


def _mean_collective_shares(ranks: Sequence[RankTimes]) -> dict[str, float]:
    """The mean share of samples in collectives by phase, over the ranks that have samples in that phase.

    Only of phases in which collectives were sampled often enough.
    """
    shares: dict[str, list[float]] = {}
    seen: Counter[str] = Counter()
    for rank in ranks:
        for phase in dict.fromkeys(phase for phase, _ in rank.samples):
            collective = rank.samples.get((phase, "ranks"), 0)
            seen[phase] += collective
            shares.setdefault(phase, []).append(collective / rank.count(phases=(phase,)))
    return {phase: sum(parts) / len(parts) for phase, parts in shares.items() if seen[phase] >= _MIN_SAMPLES}


def _waits(rank: RankTimes, shared: Mapping[str, float]) -> dict[str, float]:
    waits = dict.fromkeys(rank.ms, 0.0)
    for phase, prior in shared.items():  # by its own samples, or by all ranks' if it has few
        if phase in waits:
            collective = rank.samples.get((phase, "ranks"), 0) + _PRIOR_SAMPLES * prior
            waits[phase] = rank.ms[phase] * collective / (rank.count(phases=(phase,)) + _PRIOR_SAMPLES)
    if "backward" in waits:
        shown = waits.pop("backward")
        asleep = _asleep_in_backward(rank, sum(waits.values()))
        if asleep is not None or shown:
            waits["backward"] = max(shown, asleep or 0.0)
    return waits


def _asleep_in_backward(rank: RankTimes, elsewhere_ms: float) -> float | None:
    """The ms of a step for which the training thread sleeps in backward; None if that is unknown, and on GPUs.

    ``elsewhere_ms``: its waits for ranks in other phases.
    """
    busy, total = rank.thread.busy_ratio, rank.count()
    if rank.on_gpu or busy is None:
        return None
    asleep_ms = (1.0 - busy - rank.thread.stopped_ratio) * rank.step_ms
    for phase in dict.fromkeys(phase for phase, _ in rank.samples):
        waiting = rank.count(*_WAITS, phases=(phase,))
        elsewhere_ms += min(waiting / total * rank.step_ms, rank.ms.get(phase, 0.0))
    return max(0.0, min(rank.ms["backward"], asleep_ms - elsewhere_ms))


def _asleep_error_ms(rank: RankTimes) -> float:
    """The error of the sleep in backward: the standard error of the sleep elsewhere, by the thread's samples."""
    count = rank.count()
    if rank.on_gpu or rank.thread.busy_ratio is None or not count:
        return 0.0
    share = rank.count(*_WAITS) / count
    return math.sqrt(share * (1.0 - share) / count) * rank.step_ms


def _median_of_others(values: Sequence[float]) -> Callable[[float], float]:
    """A quick function for the median of all values but one; a single value is its own median."""
    ordered, left = sorted(values), len(values) - 1
    low, high = (left - 1) // 2, left // 2

    def median(own: float) -> float:
        if left < 1:
            return own
        place = bisect_left(ordered, own)
        return (ordered[low + (low >= place)] + ordered[high + (high >= place)]) / 2

    return median


# -- the rows of a training

#: Seconds without a record of a rank, while others have some, from which it is silent: our choice, some windows.
_SILENT_S = 10.0

RankState = Literal["starting", "training", "stopped", "silent", "lost", "ended"]


class RankRow(Struct, frozen=True):
    """One rank over the last 30 s; None if not measured. ``~``: estimates."""

    rank: int
    pid: int
    host: str | None
    state: RankState
    restarts: int
    steps: int  # since it began
    behind: int  # steps behind the first
    step_ms: float | None = None  # None if there are no markers, which its shares do not need
    phases: Mapping[str, float] = {}  # their shares of the step
    error: float = 0.0  # how far off these shares may be if they rest on samples alone
    waits: Mapping[str, float] = {}  # ~ ``wait_ratio`` by phase, as far as it is known
    excess: Mapping[str, float] = {}  # ~ ``late_ratio`` by phase
    gpu_ratio: float | None = None  # utilisation of its GPUs over the steps in focus; only ``with_utilisation``
    memory_bytes: int | None = None  # on its GPU; without one, resident
    place: Place | None = None  # the innermost user line of its latest samples
    gc_ratio: float = 0.0  # share of the step in the garbage collector
    thread: TrainingThread = TrainingThread()
    on_gpu: bool = False
    # its last windows (None: those of all time); None if windows on the CPU do not show how late it is
    history: Callable[[int | None], Sequence[StepStretch]] | None = None

    @property
    def wait_ratio(self) -> float | None:
        """~ Share of the step that it waits in collectives."""
        return sum(self.waits.values()) if self.waits and self.phases.keys() <= self.waits.keys() else None

    @property
    def late_ratio(self) -> float | None:
        """~ Share of the step by which its own work is longer than the others'; None if it is not compared."""
        return sum(self.excess.values()) if self.excess else None

    @property
    def is_late(self) -> bool:
        """True if that share is as large as a verdict reports."""
        return (self.late_ratio or 0.0) >= REPORTED

    @property
    def wait_ms(self) -> float | None:
        """~ Time of a step in collectives."""
        return self.ms(self.wait_ratio)

    @property
    def late_ms(self) -> float | None:
        """~ The time by which its own work is longer than the others'."""
        return self.ms(self.late_ratio)

    def ms(self, share: float | None) -> float | None:
        """A share of its step, in ms; None if the share or the step is unknown."""
        return share * self.step_ms if share is not None and self.step_ms is not None else None


Row = TypeVar("Row", bound=RankRow)


@cached_query
def rank_rows(view: SessionView) -> list[RankRow]:
    """The ranks of the training in focus, by rank; none if it has no ranks."""
    ranks = training_of(view.focus)
    return rows_of(ranks) if len(ranks) > 1 else []


def with_utilisation(view: SessionView, rows: Sequence[Row]) -> list[Row]:
    """The ranks with the mean utilisation of their GPUs, for people: rules need none."""
    utils = ([gpu.figures.util_ratio for gpu in view.of(row.pid).gpus] for row in rows)
    return [replace(row, gpu_ratio=mean_of_known(own)) for row, own in zip(rows, utils, strict=True)]


def training_of(own: ProcessView) -> list[ProcessView]:
    """The processes of a training, by rank; without ranks, the process alone."""
    session = own.view.session
    return [own.view.of(pid) for pid in session.group_of(own.pid) if pid in session.run_processes.known]


def ranks_end(session: Session) -> bool:
    """True if a rank of the training in focus has ended, and no other has begun and ended a step since.

    The ranks then end one after another, and those that remain can no longer be compared or judged.
    """
    ranks = training_of(session.over("recent").focus)
    ended_s = max((rank.process.t for rank in ranks if rank.process.ended), default=None)
    if ended_s is None or len(ranks) < 2:
        return False
    return not any(rank.stats.has_stepped_since(ended_s) for rank in ranks if not rank.process.ended)


def rows_of(ranks: Sequence[ProcessView]) -> list[RankRow]:
    """The rows of processes, compared with each other; a single one is neither late nor behind."""
    view, processes = ranks[0].view, [own.process for own in ranks]
    inferred = all(own.phases.inferred for own in ranks if own.phases)  # else only ranks with markers are compared
    first = max((own.stats for own in ranks), key=lambda stats: stats.total)
    is_over = view.session.exit is not None or all(process.ended for process in processes)
    restarts = Counter(process.rank for process in superseded(processes, view.processes()))
    rows, times = list[RankRow](), dict[int, RankTimes]()
    for own in ranks:
        rank, threads, sums = own.process.rank, own.thread_figures, own.totals.sums
        held = [user.memory_bytes for gpu in own.devices for user in gpu.processes if user.pid == own.pid]
        on_gpus = [held_bytes for held_bytes in held if held_bytes is not None]
        row = RankRow(
            rank=rank or 0,
            pid=own.pid,
            host=own.host,
            state=_state(own, is_over=is_over),
            restarts=restarts[rank],
            steps=own.stats.total,
            behind=_behind(first, own.stats),
            memory_bytes=sum(on_gpus) if on_gpus else (threads.rss_bytes or None) if threads else None,
            place=own.place,
            on_gpu=bool(own.process.gpu_uuids),
            history=own.stats.windows,
        )
        phases = [phase for phase in own.phases.rows if phase.name != "eval"]
        ms = {phase.name: phase.share if inferred else phase.ms_per_step or 0.0 for phase in phases}
        if own.phases.inferred is inferred and (step_ms := sum(ms.values())):
            samples = own.samples.counted(lambda row: ((row.phase, row.node.activity),))
            measured = RankTimes(ms, own.training, samples, row.on_gpu)
            row = replace(
                row,
                step_ms=None if inferred else step_ms,
                phases=measured.shares(ms),
                error=max(phase.error or 0.0 for phase in phases) if inferred else 0.0,
                gc_ratio=sums.gc_ns / max(1.0, sums.steps) / 1e6 / step_ms,
                thread=own.training,
            )
            if not row.behind:  # one at the end of its data waits for the others outside steps
                times[own.pid] = measured
        rows.append(row)
    return beside_each_other(rows, times)


def beside_each_other(rows: Sequence[RankRow], times: Mapping[int, RankTimes]) -> list[RankRow]:
    """The rows; those with times (by process) get waits and lateness, computed from each other."""
    compared = {row.pid: row for row in rows}
    for (pid, own), split in zip(times.items(), split_ranks(list(times.values())), strict=True):
        phases, waits, excess = map(own.shares, (own.ms, *split))
        compared[pid] = replace(compared[pid], phases=phases, waits=waits, excess=excess)
    return list(compared.values())


def _behind(first: StepStats, stats: StepStats) -> int:
    """Steps that a rank is behind the first; 0 if the windows, which end at different moments, explain the difference.

    Steps of the open window, which is at most as long as earlier ones, may explain it as well. Ranks out of focus have
    windows of 4 s: after a window with few steps, the first rank is soon that many steps ahead.
    """
    if first.latest is None or stats.latest is None:
        return 0
    steps = first.total - stats.total
    if steps <= max(1.0, sum(window.steps for window in stats.windows(2))):
        return 0
    return steps if steps > 2 * stats.steps_within(first.latest.t - stats.latest.t) else 0


def _state(own: ProcessView, *, is_over: bool) -> RankState:
    """The state of a rank; it is lost if it ended while other ranks go on."""
    latest = own.stats.latest
    if own.process.ended:
        return "ended" if is_over else "lost"
    if latest is None:
        return "starting"
    if own.view.session.threads[own.pid].is_stopped:
        return "stopped"
    silent = own.view.now_s - latest.t > max(_SILENT_S, 3 * latest.window_s)
    return "silent" if silent and not is_over else "training"


# -- the trainings of a run


class TrainingRow(RankRow, frozen=True):
    """One training, by its first rank that has not ended, or by its only process."""

    number: int = 1
    ranks: int = 1
    command: tuple[str, ...] = ()
    in_focus: bool = False


def which_training(session: Session, *, of_rank: bool = False) -> str:
    """The training in focus: ``4 ranks``, ``2 ranks, training 1 of 2``, ``training 2 of 4``; empty if alone.

    ``of_rank``: with the rank in focus: ``rank 3 of 4``, ``rank 0 of 2, training 1 of 2``.
    """
    focus, trainings = session.over("recent").focus, len(_trainings(session))
    ranks, number = len(session.group_of(focus.pid)), training_numbers(session).get(focus.pid)
    parts = [f"rank {focus.process.rank} of {ranks}" if of_rank else f"{ranks} ranks"] if ranks > 1 else []
    parts += [f"training {number or 1} of {trainings}"] if trainings > 1 else []
    return ", ".join(parts)


def training_rows(session: Session) -> list[TrainingRow]:
    """All trainings that still run, in the order in which they began; once all have ended, those that ended last."""
    rows, view = [], session.shown()
    focus = training_numbers(session).get(session.trainer(), 1)
    for number, members in enumerate(_trainings(session), 1):
        first = next((process for process in members if not process.ended), members[0])
        (row,) = rows_of([view.of(first.pid)])
        about = asdict(row) | {"command": tuple(first.command), "in_focus": number == focus}
        rows.append(TrainingRow(**about, number=number, ranks=len(members)))
    return rows


def training_numbers(session: Session) -> dict[int, int]:
    """The number of the training that each process belongs to, by pid; empty if there is one."""
    trainings = _trainings(session) if len(_trainings(session)) > 1 else []
    return {process.pid: number for number, members in enumerate(trainings, 1) for process in members}


@cached_query
def _trainings(session: Session) -> list[list[Process]]:
    """The processes of each training that goes on, by rank; if none does, of those that ended last."""
    trainings: list[list[Process]] = []
    seen: set[int] = set()
    for pid in session.trainers():
        ranks = training_of(session.over("recent").of(pid)) if pid not in seen else []
        members = [rank.process for rank in ranks]
        if members and not seen.intersection(process.pid for process in members):
            trainings.append(members)  # else an earlier start of the same ranks
        seen.update((pid, *(process.pid for process in members)))
    ends_s = [max(rank.t if rank.ended else math.inf for rank in members) for members in trainings]
    last_s = max(ends_s, default=0.0) - LAST_MOMENT_S
    current = [members for members, end_s in zip(trainings, ends_s, strict=True) if end_s >= last_s]
    return sorted(current, key=lambda members: (min(rank.start_unix_s for rank in members), members[0].pid))
