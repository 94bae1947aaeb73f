"""What the Session tells views and rules: immutable rows. Ratios are 0..1 (CPU: 1.0 = one core), times carry units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tuimon.records import Place


class PhaseRow(NamedTuple):
    """One exclusive phase over the window. Over all rows but ``eval`` the shares add to 1."""

    name: str
    share: float  # of the steps' wall time; for "eval": of wall time, beside the steps
    ms_per_step: float | None  # None: shares inferred from samples, no step known
    estimated: bool = False  # rests on samples: shown with "~"
    error: float | None = None  # half width of the 95 % interval of ``share``, where estimated


class RangeRow(NamedTuple):
    """One user range: ``path`` outermost first joined by "/", depth from 0."""

    path: str
    name: str
    depth: int
    phase: str
    per_step: float  # how many per step
    ms_per_step: float
    share: float


class PhaseTable(NamedTuple):
    """The phase breakdown of one process."""

    pid: int
    window_s: float  # how much time it covers
    steps: int  # how many steps it rests on; 0: inferred from frames, no steps known
    inferred: bool  # from stack samples alone, without markers
    rows: tuple[PhaseRow, ...]
    ranges: tuple[RangeRow, ...] = ()


class StepSummary(NamedTuple):
    """Steps of one process over the window; None where not measured."""

    total: int  # since the marker stream began
    per_second: float | None
    median_ms: float | None
    p95_ms: float | None
    open_phase: str | None  # what the trainer is in now
    open_for_s: float | None
    dropped: int  # markers lost
    estimated: bool = False  # ``per_second`` is told by samples (attached, no markers); nothing else is known


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """One OS thread, or a fold of like ones (``count`` > 1)."""

    pid: int
    tid: int
    role: str  # for people: "main", "worker 0", "pin-memory", "autograd", "intra-op"
    name: str
    cpu_ratio: float | None
    state: str
    delay_ratio: float | None
    place: Place | None  # innermost user line, from the latest samples
    count: int = 1
    ended: bool = False
    gil_ratio: float | None = None  # share of time it held the GIL, within a tenth; None until it was looked at enough


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU, its latest figures and the history of its utilisation (0..1, one a record, oldest first)."""

    index: int
    uuid: str
    name: str
    util_ratio: float | None
    util_history: tuple[float | None, ...]
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    throttle: tuple[str, ...]
    stale_s: float  # age of these figures
    used_by_run: bool  # one of the run's processes has a context on it, or said so


class HotLine(NamedTuple):
    """A user line and its share of the samples asked about."""

    place: Place
    share: float  # 0..1
    samples: int
    total: int  # samples the share is of


class LoaderWorkerRow(NamedTuple):
    """One DataLoader worker over the last 30 s; times are means of a batch. None where not measured."""

    pid: int
    number: int
    busy_ratio: float | None  # share of time in items or collate
    batches_per_s: float | None
    items_ms: float | None
    collate_ms: float | None
    wait_ms: float | None  # handing over, and waiting to be asked for more
    hot: HotLine | None  # its hottest line of the user's
    ended: bool = False


class LoaderRow(NamedTuple):
    """One DataLoader over the last 30 s in which it was used. None where not measured."""

    pid: int
    number: int
    role: str | None  # "train" or "eval": what its batches are used for
    dataset: str
    kind: str  # "map" or "iterable"
    workers: int  # 0: the training process makes the batches, and is the one row of worker_rows
    prefetch: int | None
    batch_size: int | None
    pin_memory: bool
    persistent: bool
    context: str | None  # "fork", "spawn", "forkserver"
    idle_s: float  # since it was last used
    fetches_per_s: float | None
    wait_ms: float | None  # mean of a fetch, as the trainer waits
    wait_p95_ms: float | None  # typical of a window
    waits_for_s: float | None  # a fetch was under way at the end of the latest window
    ready_now: int | None  # batches that were ready at the latest fetch
    ready_mean: float | None
    ready_none_ratio: float | None  # share of fetches that found none ready
    ready_most: int | None  # workers x prefetch
    ready_history: tuple[float | None, ...]  # mean of a window, oldest first
    worker_rows: tuple[LoaderWorkerRow, ...]
