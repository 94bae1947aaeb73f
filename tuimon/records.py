"""Records: timestamped facts, each covering one window; the log file is this stream, one JSON object a line.

Every record carries ``type`` (the tag), ``t`` (end of its window, seconds of ``time.monotonic()``; the header
anchors that clock to wall time) and ``pid`` (the process it speaks of; 0 when it speaks of the machine).
``None`` means "not measured"; a number is always a measurement.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, Union

import msgspec

SCHEMA = 1

#: The exclusive phases of a step, in the order they are shown. ``between`` is the stretch that markers cannot
#: split (from an update to the next backward in a loop without a DataLoader); the Session divides it by samples.
PHASES = ("data", "forward", "backward", "optimizer", "other", "eval")
BETWEEN = "between"

Phase = Literal["data", "forward", "backward", "optimizer", "other", "eval", "between"]
ProcessRole = Literal["trainer", "worker", "other"]
ThreadState = Literal["running", "waiting", "disk", "stopped", "ended"]


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Common to all records: ``t`` in seconds of the monotonic clock, ``pid`` (0: the machine)."""

    t: float
    pid: int


class Header(Record, frozen=True, kw_only=True, tag="header", omit_defaults=False):
    """First line of a log: where and how this session was recorded."""

    schema: int = SCHEMA
    mode: Literal["run", "attach"]
    command: list[str]
    host: str
    wall_unix_s: float  # wall clock, seconds since the epoch, at the moment ``t``
    interval_s: float
    cpu_count: int
    versions: dict[str, str]  # "tuimon", "python", "py-spy", ...


class Process(Record, frozen=True, kw_only=True, tag="process"):
    """A process of the run appeared, or what is known of it changed."""

    ppid: int
    start_unix_s: float
    command: list[str]
    role: ProcessRole
    markers: bool  # its ring is being read
    markers_reason: str | None = None  # why not, for people
    rank: int | None = None
    world_size: int | None = None
    python: str | None = None
    torch: str | None = None
    gpu_uuids: list[str] = msgspec.field(default_factory=list)
    parameter_dtypes: list[str] = msgspec.field(default_factory=list)  # of what an optimizer updates: "float32", ...
    tf32: bool | None = None  # whether float32 matrix products may round to TF32
    ended: bool = False


class PhaseTime(msgspec.Struct, frozen=True, array_like=True):
    """Time spent in one exclusive phase during a window: ``[name, total_ns]``."""

    name: str
    total_ns: int


class RangeTime(msgspec.Struct, frozen=True, array_like=True):
    """A user range (``tuimon.phase``, NVTX): ``[path, count, total_ns, phase]``.

    ``path`` is outermost first, joined by "/"; ``total_ns`` includes nested ranges; ``phase`` is the exclusive phase
    in which most of it lay.
    """

    path: str
    count: int
    total_ns: int
    phase: str


class RangePlace(msgspec.Struct, frozen=True, array_like=True):
    """Where ranges of a path were opened and closed: ``[path, file, function, first, last]``.

    A stack with a frame of that function between these lines was sampled within it.
    """

    path: str
    file: str
    function: str
    first: int
    last: int


class SlowStep(msgspec.Struct, frozen=True):
    """The slowest step of a window, whole."""

    index: int
    total_ns: int
    phases: list[PhaseTime]


_BUCKET_GROWTH = math.log(1.01)


def length_bucket(duration_ns: int) -> int:
    """Bucket of a step's length: logarithmic, 1 % wide, so that windows merge and a quantile is right within 0.5 %."""
    return round(math.log(max(1, duration_ns)) / _BUCKET_GROWTH)


def bucket_length_ns(bucket: int) -> float:
    """The middle of a bucket, in ns."""
    return math.exp(bucket * _BUCKET_GROWTH)


class Steps(Record, frozen=True, kw_only=True, tag="steps"):
    """The training steps that ended in a window of one process, as sums, quantiles and the slowest whole.

    The phases' ``total_ns`` add up to ``total_ns`` (``eval`` is beside it: evaluation is no part of a step).
    """

    window_s: float
    count: int
    first_index: int  # number of the first of these steps, from 0 at the start of the marker stream
    total_ns: int
    min_ns: int | None = None
    median_ns: int | None = None
    p95_ns: int | None = None
    histogram: list[tuple[int, int]] = msgspec.field(default_factory=list)  # (bucket, steps): see ``length_bucket``
    phases: list[PhaseTime]
    ranges: list[RangeTime] = msgspec.field(default_factory=list)
    range_places: list[RangePlace] = msgspec.field(default_factory=list)  # each told once
    slowest: SlowStep | None = None
    eval_count: int = 0  # evaluation iterations
    backwards: int = 0
    updates: int = 0
    open_phase: str | None = None  # phase the trainer is in at ``t``
    open_for_s: float | None = None  # for how long
    dropped: int = 0  # markers overwritten before they were read
    gc_ns: int | None = None  # pauses of the garbage collector of half a millisecond and more, on any thread
    gc_count: int = 0
    gc_longest_ns: int = 0


class Mark(Record, frozen=True, kw_only=True, tag="mark"):
    """``tuimon.mark(name)`` or an NVTX mark."""

    name: str


class LoaderFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a DataLoader was made."""

    dataset: str  # name of its data set's class
    kind: Literal["map", "iterable"]
    workers: int
    prefetch: int | None = None  # batches a worker loads ahead
    batch_size: int | None = None  # None: no automatic batches, or a batch sampler that does not tell
    pin_memory: bool = False  # in effect, not only asked for
    persistent: bool = False
    context: str | None = None  # "fork", "spawn", "forkserver"; None without workers


class LoaderWorker(msgspec.Struct, frozen=True, array_like=True):
    """A worker since it was listed last: ``[pid, number, batches, items_ms, collate_ms, wait_ms, hand_over_ms]``.

    The times add up to that span. ``hand_over_ms``: with nothing else to do, its batch was still being pickled and
    written to the pipe, which the trainer may keep waiting; where that is None, it is in ``wait_ms``: waiting to be
    asked for more. Without workers the one row is the training process itself. None where not measured.
    """

    pid: int
    number: int
    batches: int | None = None
    items_ms: float | None = None
    collate_ms: float | None = None
    wait_ms: float | None = None
    hand_over_ms: float | None = None


class Loader(Record, frozen=True, kw_only=True, tag="loader"):
    """One DataLoader of a process over a window in which it was used; its workers take turns where there are many."""

    number: int  # tells loaders of one process apart
    window_s: float
    role: Literal["train", "eval"] | None = None  # what its batches were used for so far
    fetches: int = 0
    wait_ns: int = 0  # time the trainer spent in these fetches
    p95_ns: int | None = None  # of one fetch
    ready_fetches: int = 0  # fetches for which it is known how many batches were ready
    ready_total: int = 0  # sum of those numbers
    ready_none: int = 0  # how often none was ready
    ready_last: int | None = None
    waits_for_s: float | None = None  # a fetch is under way for so long, half a second at least
    starts: int = 0  # epochs that began: workers were started, or began anew, and the first batch came
    start_ns: int = 0  # time the trainer spent in that: in ``iter(loader)`` and in the first fetch
    iter_ns: int = 0  # of that, what is not in ``wait_ns``: in ``iter(loader)``
    facts: LoaderFacts | None = None  # told at first and now and then
    workers: list[LoaderWorker] = msgspec.field(default_factory=list)


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A place in code: ``[file, line, function, source, user]``; ``source`` is the line's text for user code."""

    file: str
    line: int
    function: str
    source: str = ""
    user: bool = False  # outside the standard library, site-packages and tuimon


class Frames(Record, frozen=True, kw_only=True, tag="frames"):
    """Frames seen for the first time in this stream; their ids count up from ``first`` over all processes."""

    first: int
    frames: list[Frame]


class StackCount(msgspec.Struct, frozen=True, array_like=True):
    """How often a stack was seen in a window: ``[tid, thread, frame ids root first, count]``."""

    tid: int
    thread: str
    frames: list[int]
    count: int


class Stacks(Record, frozen=True, kw_only=True, tag="stacks"):
    """Stack samples of one process over a window (py-spy, nonblocking)."""

    window_s: float
    rate_hz: float  # achieved, not asked for
    samples: int  # per thread: how many instants were sampled
    stacks: list[StackCount]
    folded: int = 0  # thread-samples of rare stacks that are not listed
    failed: int = 0  # samples that py-spy could not read
    cost_cpu_s: float = 0.0  # CPU time of the py-spy child itself
    lost: bool = False  # py-spy failed, was killed or hung: the window holds nothing
    parked: list[tuple[int, str]] = msgspec.field(default_factory=list)  # Python threads not in ``stacks``, told once
    cycles: int | None = None  # how often the main thread was seen to enter backward, where samples are dense enough


class GilCount(msgspec.Struct, frozen=True, array_like=True):
    """How often a thread was seen to hold the GIL: ``[tid, count]``."""

    tid: int
    count: int


class Gil(Record, frozen=True, kw_only=True, tag="gil"):
    """Who held the GIL at about ``looks`` instants of a short window; threads that never held it are not listed.

    py-spy writes down only looks that found an owner: how often it looked is its rate times the window's length.
    """

    looks: int
    threads: list[GilCount]


class ThreadCpu(msgspec.Struct, frozen=True, array_like=True):
    """One OS thread: ``[tid, name, cpu_ratio, state, delay_ratio, count]``.

    ``cpu_ratio``: CPU time / wall time (1.0 = one core). ``delay_ratio``: time runnable but waiting for a core / wall
    time (schedstat). ``count``: more than 1 when idle threads of one name are folded into this row.
    """

    tid: int
    name: str
    cpu_ratio: float | None
    state: str
    delay_ratio: float | None = None
    count: int = 1


class Threads(Record, frozen=True, kw_only=True, tag="threads"):
    """The threads of one process over a window."""

    window_s: float
    cpu_ratio: float | None  # of the whole process
    rss_bytes: int | None
    threads: list[ThreadCpu]
    folded: int = 0  # threads not listed


class GpuProcess(msgspec.Struct, frozen=True, array_like=True):
    """A process on a GPU: ``[pid, memory_bytes, sm_ratio]``; pid 0: the driver tells none that means something here."""

    pid: int
    memory_bytes: int | None = None
    sm_ratio: float | None = None


class Throttle(msgspec.Struct, frozen=True, array_like=True):
    """What held the clocks down: ``[cause, ratio]``, the share of the window; None where only the moment is known."""

    cause: str
    ratio: float | None = None


class Gpu(Record, frozen=True, kw_only=True, tag="gpu"):
    """Counters of one GPU, or of one MIG instance (NVML). Every figure may be unsupported: ``None``."""

    index: int
    uuid: str
    name: str
    util_ratio: float | None = None  # share of time in which a kernel was running
    util_samples: list[float] = msgspec.field(default_factory=list)  # driver-buffered, oldest first
    sm_ratio: float | None = None  # GPM: share of the multiprocessors that were busy, mean over the window
    occupancy_ratio: float | None = None  # GPM: resident warps against the most possible
    tensor_ratio: float | None = None  # GPM: tensor pipes
    dram_ratio: float | None = None  # GPM: memory bandwidth in use
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None  # mean, where the driver tells; else the moment
    power_instant_w: float | None = None  # the highest of the window's looks
    power_limit_w: float | None = None
    energy_j: float | None = None  # since the driver was loaded: only differences mean something
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    throttle: list[str] = msgspec.field(default_factory=list)  # at the moment
    throttled: list[Throttle] = msgspec.field(default_factory=list)  # over the window
    pcie_rx_bytes_per_s: float | None = None  # to the GPU
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    xids: list[int] = msgspec.field(default_factory=list)  # in the window
    pids: list[int] = msgspec.field(default_factory=list)
    processes: list[GpuProcess] = msgspec.field(default_factory=list)
    parent_uuid: str | None = None  # of a MIG instance: the GPU it is cut from
    compute_capability: float | None = None  # 9.0: told at first and now and then
    chosen: bool = False  # named by CUDA_VISIBLE_DEVICES, while no process of the run has said which GPUs it uses
    cost_ms: float | None = None  # what asking took


def bare_uuid(uuid: str) -> str:
    """Without "GPU-" or "MIG-": torch tells a MIG instance's UUID without saying that it is one."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


class GpuPhase(msgspec.Struct, frozen=True, array_like=True):
    """A phase on the GPU's clock: ``[name, span_ns, idle_ns, paced_ns]``.

    ``span_ns``: from the moment the GPU came to its beginning to the moment it came to its end. Of that, ``idle_ns``
    nothing was there to do, and in ``paced_ns`` the GPU had finished before the CPU came to the end: how much of it was
    idle is not known.
    """

    name: str
    span_ns: int
    idle_ns: int
    paced_ns: int


class Lead(msgspec.Struct, frozen=True, array_like=True):
    """How far launches ran ahead at one kind of boundary: ``[boundary, count, min_us, median_us, max_us, drained]``.

    ``boundary``: "fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end". ``drained``: at how
    many of them the GPU had nothing left to do. The times are None where the clocks are not known well enough.
    """

    boundary: str
    count: int
    min_us: float | None
    median_us: float | None
    max_us: float | None
    drained: int


class GpuTime(Record, frozen=True, kw_only=True, tag="gpu_time"):
    """The turns of a training loop that were timed by events on its GPU and became known in a window.

    Not every turn is timed, to keep the cost down. A turn goes from the first boundary after an update to the next
    such. The phases' ``span_ns`` add up to ``total_ns`` (``eval`` is beside it).
    """

    window_s: float
    device: int  # torch's number of it
    turns: int
    total_ns: int
    phases: list[GpuPhase]
    leads: list[Lead]
    lead_error_us: float | None = None  # half the width of what the offset of the clocks can be
    given_up: int = 0  # turns that could not be timed: captured, on changing streams, or their events were lost


class TorchMemory(Record, frozen=True, kw_only=True, tag="torch_memory"):
    """torch's CUDA caching allocator in one process, as it was last told in a window."""

    device: int
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    alloc_retries: int | None = None  # since the process began
    ooms: int | None = None


class MachineMemory(Record, frozen=True, kw_only=True, tag="machine_memory"):
    """Memory of the machine, and what the run's control group leaves it of that. ``None``: not told, or no limit."""

    window_s: float  # that the rates are of
    total_bytes: int | None = None
    available_bytes: int | None = None  # without swapping (MemAvailable)
    limit_bytes: int | None = None  # of the control group with the least room left
    limit_used_bytes: int | None = None  # of that, without the file cache that can be given back at once
    swap_in_bytes_per_s: float | None = None
    swap_out_bytes_per_s: float | None = None
    stalled_ratio: float | None = None  # share of the last 10 s in which some task waited for memory (PSI)


class Notice(Record, frozen=True, kw_only=True, tag="notice"):
    """What a source has to say of itself: why it shows nothing, what it lost, or that it is well again."""

    source: str  # "markers", "stacks", "gpu", "processes", "log", "output"
    level: Literal["ok", "info", "warning"]
    message: str
    hint: str | None = None


class Cost(Record, frozen=True, kw_only=True, tag="cost"):
    """What tuimon itself uses: CPU (1.0 = one core) with its py-spy children, and resident memory."""

    window_s: float
    cpu_ratio: float
    sampler_cpu_ratio: float
    rss_bytes: int
    queue_dropped: int = 0


class Exit(Record, frozen=True, kw_only=True, tag="exit"):
    """The launched (or attached) process ended. ``exit_code`` is None when it cannot be known (attach)."""

    exit_code: int | None  # 128+n for signal n
    signal: str | None = None  # "SIGKILL"
    last_line: str | None = None  # last line of a traceback in its output, where we hold the output
    survivors: list[int] = msgspec.field(default_factory=list)  # pids of the run that train on


AnyRecord = Union[  # noqa: UP007  (msgspec needs the runtime union on 3.10)
    Header,
    Process,
    Steps,
    Mark,
    Loader,
    Frames,
    Stacks,
    Gil,
    Threads,
    Gpu,
    GpuTime,
    TorchMemory,
    MachineMemory,
    Notice,
    Cost,
    Exit,
]


class Place(NamedTuple):
    """A line of the user's code, as findings and panes name it."""

    file: str
    line: int
    function: str
    source: str = ""
