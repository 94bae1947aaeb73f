"""Records: timestamped facts, each covering one window; the log file is this stream, one JSON object a line.

Every record carries ``type`` (the tag), ``t`` (end of its window, seconds of ``time.monotonic()``; the header
anchors that clock to wall time) and ``pid`` (the process it is about; 0 when it is about the machine).
``None`` means "not measured"; a number is always a measurement. Ratios are 0..1, or for CPU 1.0 = one core.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args

import msgspec

SCHEMA = 1

#: The exclusive phases of a step, in the order they are shown. ``between`` is the time that markers cannot split
#: (from an update to the next backward in a loop without a DataLoader); the Session divides it by stack samples.
StepPhase = Literal["data", "forward", "backward", "optimizer", "other"]
STEP: tuple[StepPhase, ...] = get_args(StepPhase)
PHASES = (*STEP, "eval")
BETWEEN = "between"
#: The phases that samples divide it into.
DIVIDED: tuple[StepPhase, ...] = ("data", "forward", "other")
#: The phases in which only the model computes, those that only training has, and both.
MODEL: tuple[StepPhase, ...] = ("forward", "backward")
UPDATE: tuple[StepPhase, ...] = ("backward", "optimizer")
PASSES: tuple[StepPhase, ...] = ("forward", "backward", "optimizer")

Phase = Literal["data", "forward", "backward", "optimizer", "other", "eval", "between"]
#: ``child``: forked or spawned by a trainer in Python, and not seen to load for a DataLoader.
ProcessRole = Literal["trainer", "worker", "child", "other"]
ThreadState = Literal["running", "waiting", "disk", "stopped", "ended"]


# Ranges of figures in a log: checked when a line is decoded, not when a record is made. Beyond is damage.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]  # of anything, ns and bytes included
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**62)]  # of what a row stands for: no row without any
Index = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]
Pid = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Cores = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
Bucket = Annotated[int, msgspec.Meta(ge=0, le=5000)]  # of ``length_bucket``: up to 1e12 s
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]  # s: up to the year 5138
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Window = Annotated[float, msgspec.Meta(gt=0, le=1e9)]  # s
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
Signed = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
_LISTED = msgspec.Meta(max_length=10_000)  # rows of one record; we write some dozens


class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag_field="type", omit_defaults=True):
    """Common to all records: ``t`` in seconds of the monotonic clock, ``pid`` (0: the machine)."""

    t: Moment
    pid: Pid


class Header(Record, frozen=True, kw_only=True, tag="header", omit_defaults=False):
    """First line of a log: where and how this session was recorded."""

    schema: int = SCHEMA
    mode: Literal["run", "attach"]
    command: list[str]
    host: str
    wall_unix_s: Moment  # wall clock, seconds since the epoch, at the moment ``t``
    interval_s: Window
    cpu_count: Cores
    versions: dict[str, str]  # "tuimon", "python", "py-spy", ...
    run: str | None = None  # name of the run, the same on all its nodes: --run NAME, the scheduler's or launcher's id
    node: Index | None = None  # number of this node among those of the run, as the scheduler or launcher counts

    @property
    def late_after_s(self) -> float:
        """The age of its latest record at which a log is late: a steady run's windows of 10 s come seconds later."""
        return 15.0 + 2 * self.interval_s

    def moment_s(self, unix_s: float) -> Moment:
        """A moment of the wall clock, on the clock of the records."""
        return self.t + unix_s - self.wall_unix_s


#: The ``markers_reason`` of a process that may yet have markers.
NO_TORCH_YET = "no torch imported yet"


class OptimizerFacts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An optimizer that a training steps, read once."""

    name: str  # of its class
    package: str  # that its class is defined in: "torch", "bitsandbytes", "__main__"
    fused: bool | None = None  # in its first group of parameters; None: it has no such setting, or leaves it to torch
    groups: Count | None = None  # of parameters
    tensors: Count | None = None  # that require gradients
    elements: Count | None = None  # of these tensors, together
    device: str | None = None  # that has all its parameters: "cuda"; on it, after its first update that was seen:
    parameter_bytes: Count | None = None
    gradient_bytes: Count | None = None
    state_bytes: Count | None = None


class UnusedGradients(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Gradients that backward computes and no optimizer holds: ``[tensors, of_tensors, inputs, of_inputs]``.

    ``tensors``: parameters of the graph with such gradients. ``inputs``: inputs of its matrix products and convolutions
    whose gradient leads to no parameter that an optimizer holds; in a compiled graph none of these is known.
    """

    tensors: Count
    of_tensors: Positive
    inputs: Count
    of_inputs: Count


class Warned(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A known warning that Python issued in a process, by the line that caused it: ``[text, file, line]``."""

    text: str  # a part of the warning
    file: str
    line: Count


class Process(Record, frozen=True, kw_only=True, tag="process"):
    """A process of the run appeared, changed or ended: all facts about it, not only what changed."""

    ppid: Pid
    start_unix_s: Moment  # seconds since the epoch; with the pid it identifies the process
    command: list[str]
    role: ProcessRole
    markers: bool  # whether its ring is being read
    markers_reason: str | None = None  # why it is not, as a phrase for the user
    rank: Index | None = None
    world_size: Index | None = None
    python: str | None = None  # version
    torch: str | None = None  # version, once torch is imported
    gpu_uuids: list[str] = msgspec.field(default_factory=list)  # of the GPUs that the process reports to use
    parameter_dtypes: list[str] = msgspec.field(default_factory=list)  # of what optimizers update: "float32", ...
    tf32: bool | None = None  # whether float32 matrix products may round to TF32
    cudnn_tf32: bool | None = None  # whether convolutions and recurrent layers may, too
    # of the results of matrix products and convolutions in the first forward passes, as far as their graphs show:
    # "bfloat16" or "float16" with float32 parameters means autocast, or casts by hand
    matmul_dtypes: list[str] = msgspec.field(default_factory=list)
    optimizers: list[OptimizerFacts] = msgspec.field(default_factory=list)  # that have stepped, at most four
    unused_gradients: UnusedGradients | None = None
    warnings: list[Warned] = msgspec.field(default_factory=list)
    intra_op_threads: Count | None = None  # that share an operation on the CPU: ``torch.get_num_threads()``
    omp_num_threads: Count | None = None  # OMP_NUM_THREADS in the environment that it was started with
    debug_settings: list[str] = msgspec.field(default_factory=list)  # that slow every step: "anomaly_detection", ...
    vectors: str | None = None  # of the CPU, for torch's products: "amx", "avx512_bf16", "avx512", "avx2"
    # updates and epochs that its Trainer (transformers', Lightning's) still had to make after the first update
    planned_steps: Count | None = None
    planned_epochs: Count | None = None
    ended: bool = False

    @property
    def serves(self) -> bool:
        """True if it is a DataLoader worker, or another child of a training process."""
        return self.role in ("worker", "child")

    def uses(self, gpu: Gpu) -> bool:
        """True if it reports to use this GPU or MIG instance; that it uses none is never reported."""
        return bool(self.gpu_uuids) and bare_uuid(gpu.uuid) in map(bare_uuid, self.gpu_uuids)


class PhaseTime(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Time spent in one exclusive phase during a window: ``[name, total_ns]``."""

    name: str
    total_ns: Count


#: The path that sums up all ranges beyond the number of paths that are kept apart.
MORE_RANGES = "(more ranges)"


class RangeTime(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All uses of a user range (``tuimon.phase``, NVTX) in a window: ``[path, count, total_ns, phase]``.

    ``path`` holds the names of the enclosing ranges, outermost first, and its own, joined by "/"; ``total_ns`` includes
    nested ranges; ``phase`` is the exclusive phase in which most of that time lies.
    """

    path: str
    count: Positive
    total_ns: Count
    phase: str


class RangePlace(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The place at which ranges of a path are opened and closed: ``[path, file, function, first, last]``.

    A stack with a frame of that function between the lines ``first`` and ``last`` was sampled inside such a range.
    """

    path: str
    file: str
    function: str
    first: Count
    last: Count


class SlowStep(msgspec.Struct, frozen=True, gc=False):
    """The slowest step of a window, with its own phases."""

    index: Count
    total_ns: Count
    phases: list[PhaseTime]


class RankStep(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One step of a rank, to be compared with the same step of the other ranks, in whole microseconds.

    ``[index, before_us, data_us, forward_us, backward_us, optimizer_us, other_us, between_us]``: its number, how long
    before ``t`` it ended, and its phases.
    """

    index: Count
    before_us: Count
    data_us: Count
    forward_us: Count
    backward_us: Count
    optimizer_us: Count
    other_us: Count
    between_us: Count


_BUCKET_GROWTH = math.log(1.01)


def length_bucket(duration_ns: int) -> int:
    """Histogram bucket of a step's length: logarithmic and 1 % wide, so that a quantile is right within 0.5 %."""
    return round(math.log(max(1, duration_ns)) / _BUCKET_GROWTH)


def bucket_length_ns(bucket: int) -> float:
    """The middle of a bucket, in ns."""
    return math.exp(bucket * _BUCKET_GROWTH)


class Steps(Record, frozen=True, kw_only=True, tag="steps"):
    """The training steps of one process that ended in a window: sums, quantiles, and the slowest step on its own.

    The ``total_ns`` of the phases add up to ``total_ns``; only ``eval`` is not part of it, as it belongs to no step.
    """

    window_s: Window
    count: Count  # steps
    first_index: Count  # number of the first of these steps, from 0 at the start of the marker stream
    total_ns: Count  # length of all these steps, but for those in ``slowed``
    # How many of these steps were timed boundary by boundary: the lengths below and ``slowest`` are of those. In a fast
    # loop the others are only counted, and their phases estimated from the timed ones. None: all were timed.
    timed: Count | None = None
    # Steps that a profiler of ours slowed or held up (a trace, the memory history), that a stop held up (SIGSTOP), or
    # that began before the first marker (the first step without a DataLoader): ``count`` includes them, but their times
    # are in ``slowed_ns`` alone.
    slowed: Count = 0
    slowed_ns: Count = 0
    min_ns: Count | None = None
    median_ns: Count | None = None
    p95_ns: Count | None = None
    histogram: list[tuple[Bucket, Positive]] = msgspec.field(default_factory=list)  # (``length_bucket``, steps)
    phases: list[PhaseTime]
    ranges: list[RangeTime] = msgspec.field(default_factory=list)
    range_places: list[RangePlace] = msgspec.field(default_factory=list)  # each in one record only
    slowest: SlowStep | None = None
    rank_steps: list[RankStep] = msgspec.field(default_factory=list)  # with several ranks: a few, the same in all
    eval_count: Count = 0  # evaluation iterations
    backwards: Count = 0  # backward passes
    updates: Count = 0  # runs of optimizer steps with nothing between them
    open_phase: str | None = None  # phase the trainer is in at ``t``
    open_for_s: Amount | None = None  # how long it has been in that phase, or in an unknown one
    # The part of the window in which the program had left its training loop (a notebook between its cells), or was
    # stopped by a signal.
    outside_s: Amount | None = None
    first_backward_s: Moment | None = None  # when the first backward of the stream began, in the record that holds it
    first_step_s: Moment | None = None  # when the first step of the stream began, in the record that holds it
    last_step_s: Moment | None = None  # when the last of these steps ended, where that was known only after the window
    dropped: Count = 0  # markers overwritten before they were read
    gc_ns: Count | None = None  # total of the garbage collector's pauses of at least 0.5 ms, on any thread
    gc_count: Count = 0  # number of these pauses
    gc_longest_ns: Count = 0
    samples: Count | None = None  # in all these steps, if the program passes them to ``tuimon.step``
    tokens: Count | None = None  # likewise
    tid: Count | None = None  # the thread that trains, where it is not the main one

    @property
    def usual(self) -> int:
        """The number of steps that the times cover: all but those in ``slowed``."""
        return max(0, self.count - self.slowed)


class Mark(Record, frozen=True, kw_only=True, tag="mark"):
    """The user marked this moment by ``tuimon.mark(name)`` or an NVTX mark."""

    name: str


class LoaderFacts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The arguments that a DataLoader was created with."""

    dataset: str  # name of its data set's class
    kind: Literal["map", "iterable"]
    workers: Count  # 0: the training process loads the batches itself
    prefetch: Count | None = None  # batches a worker loads ahead
    batch_size: Count | None = None  # None: no automatic batching, or a batch sampler without a fixed size
    pin_memory: bool = False  # whether it takes effect: without a GPU torch ignores it
    persistent: bool = False  # whether workers stay for the next epoch
    context: str | None = None  # "fork", "spawn", "forkserver"; None without workers
    in_order: bool | None = None  # whether a batch waits for those requested before it; None before torch 2.6
    item: Place | None = None  # where its items are made: __getitem__, __getitems__ or __iter__ of the data set
    collate: Place | None = None  # where batches are made of items: the collate_fn


class LoaderWorker(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A worker since its last report: ``[pid, number, batches, items_ms, collate_ms, wait_ms, hand_over_ms]``.

    The times add up to the time since that report. ``wait_ms``: waiting for the trainer to request a batch.
    ``hand_over_ms``: waiting only for its last batch to be pickled and written to the pipe, which blocks until the
    trainer reads; where None, it is part of ``wait_ms``. Without workers the one row is the training process itself.
    """

    pid: Pid
    number: Count
    batches: Count | None = None
    items_ms: Amount | None = None
    collate_ms: Amount | None = None
    wait_ms: Amount | None = None
    hand_over_ms: Amount | None = None


class MeasuredBatches(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Sums over batches that were measured when the training got them.

    ``[count, bytes, samples, on_cpu, pinned, tokens, padding, tensors]``.

    ``samples``: rows of each batch's first tensor. ``on_cpu``: batches with all their tensors on the CPU; ``pinned``:
    batches whose tensors on the CPU were all in pinned memory. ``tokens``: by the shape of the token ids; ``padding``:
    how many of these a mask leaves out. None: unknown for some of the batches.
    """

    count: Positive
    total_bytes: Count
    samples: Count | None = None
    on_cpu: Count = 0
    pinned: Count | None = None
    tokens: Count | None = None
    padding: Count | None = None
    tensors: Count | None = None

    def plus(self, other: MeasuredBatches) -> MeasuredBatches:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        sums: list[Any] = [None if None in pair else sum(pair) for pair in pairs]  # Any: some may be unknown
        return MeasuredBatches(*sums)

    @property
    def mean_samples(self) -> float | None:
        return None if self.samples is None else self.samples / self.count


class Loader(Record, frozen=True, kw_only=True, tag="loader"):
    """One DataLoader of a process over a window in which it was used."""

    number: Count  # distinguishes the loaders of one process
    window_s: Window
    role: Literal["train", "eval"] | None = None  # what its batches have been used for so far
    fetches: Count = 0  # that were timed
    counted: Count = 0  # further fetches, which a fast loop only counts
    wait_ns: Count = 0  # time the trainer spent in the fetches that were timed
    p95_ns: Count | None = None  # 95th percentile of a fetch
    held_ns: Count = (
        0  # time beyond the usual in which fetches waited for the next batch in order while later ones came
    )
    held_ms2: Amount = 0.0  # sum of the squares of these times, in ms: both together give a typical one
    ready_fetches: Count = 0  # fetches for which the number of ready batches is known
    ready_total: Count = 0  # sum of these numbers
    ready_none: Count = 0  # fetches that found no batch ready
    ready_last: Count | None = None  # batches ready at the latest fetch
    waits_for_s: Amount | None = None  # how long a fetch has been under way at ``t``; only from 0.5 s on
    starts: Count = 0  # epochs that began: workers were started or reset, and the first batch came
    start_ns: Count = 0  # time the trainer spent in these starts: in ``iter(loader)`` and in the first fetch
    iter_ns: Count = 0  # the part of ``start_ns`` in ``iter(loader)``, which ``wait_ns`` does not hold
    end_ns: Count = 0  # time the trainer spent at the ends of epochs, waiting for workers; ``wait_ns`` does not hold it
    facts: LoaderFacts | None = None  # in the first record and in some later ones
    workers: list[LoaderWorker] = msgspec.field(default_factory=list)  # of many workers, a few in each record
    batches: MeasuredBatches | None = None  # from the few fetches that were measured
    epochs: Count = 0  # that have ended: no batch was left, or the next epoch began
    given: Count | None = None  # batches so far of the epoch under way, or of the last one that was left
    length: Count | None = None  # batches of an epoch


#: The kind of object that a line keeps one more of each time: a thing with a graph, a figure, a hook, or another
#: object.
Kept = Literal["graph", "figure", "hook", "object"]


class KeepingLine(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line that keeps one more of something, step after step: ``[line, function, source, kept]``."""

    line: Count
    function: str
    source: str
    kept: Kept = "graph"


#: A setting that a line of code makes: the number of threads that share one of torch's operations on the CPU, the
#: number of workers, the cores that may be used, or the function that traces the program.
CountSetting = Literal["threads", "workers", "cores", "tracer"]


class CountSettings(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line of code that makes a ``CountSetting``: ``[what, line, function, source]``."""

    what: CountSetting
    line: Count
    function: str
    source: str


class Frame(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line of code on a stack.

    ``[file, line, function, source, user, inside, packages, no_grad, branch, counts, loop, keeping]``. Texts, and
    the facts read from them, are given for user code and for the few lines of libraries that need one.
    """

    file: str
    line: Count
    function: str
    source: str = ""
    user: bool = False  # whether it is outside the standard library, site-packages and tuimon
    inside: str = ""  # unused; in older logs: what the blocks around the line name
    packages: str = ""  # unused; in older logs: the packages that do the line's work
    # first and last line of the block around it that runs without gradients, a function or ``with``; None: unknown
    no_grad: tuple[Count, Count] | None = None
    branch: tuple[Count, Count] | None = None  # unused; in older logs: lines of an ``if`` around it
    counts: tuple[
        CountSettings, ...
    ] = ()  # lines of its file that set numbers of threads or workers; only in the file's first frame
    loop: bool = False  # whether it is in a ``for`` or ``while`` of its function, as far as known
    keeping: tuple[KeepingLine, ...] = ()  # lines of its file that keep; in its first frame


class Frames(Record, frozen=True, kw_only=True, tag="frames"):
    """Frames that are new in this stream; their ids count up from ``first``, over all processes."""

    first: Count
    frames: list[Frame]


class StackCount(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The number of a thread's samples with one stack: ``[tid, thread name, frame ids root first, count]``."""

    tid: Count
    thread: str
    frames: Annotated[list[Count], _LISTED]
    count: Positive


class LoopStack(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stack of the training thread in a boundary of its loop: ``[boundary, frame ids]``.

    As a hook there found it, or the first sample in backward; with all frames of libraries.
    """

    boundary: Literal["backward", "optimizer"]
    frames: Annotated[list[Count], _LISTED]  # root first


class Stacks(Record, frozen=True, kw_only=True, tag="stacks"):
    """Stack samples of one process over a window (py-spy, nonblocking; or by the agent inside it)."""

    window_s: Seconds
    rate_hz: Amount | None = None  # achieved, not requested
    samples: Count  # instants at which all threads were sampled
    stacks: Annotated[list[StackCount], _LISTED]
    folded: Count = 0  # samples of rare stacks that are not listed, summed over threads
    failed: Count = 0  # samples that py-spy could not read
    cost_cpu_s: Amount = 0.0  # CPU time of the py-spy process, or of the agent's thread
    lost: bool = False  # whether py-spy failed, was killed or hung: then the window holds no samples
    parked: list[tuple[Count, str]] = msgspec.field(default_factory=list)  # idle Python threads: (tid, name), each once
    cycles: Count | None = None  # entries into backward, or else into updates; None if samples are too far apart
    in_process: bool = False  # taken by the agent, where py-spy may not read the process
    loop: list[LoopStack] = msgspec.field(default_factory=list)  # once known, and when it changes


class GilCount(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The number of samples in which a thread holds the GIL: ``[tid, count]``."""

    tid: Count
    count: Positive


class GilFunction(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Samples with a thread holding the GIL in, or below, a user's function: ``[tid, file, function, count]``."""

    tid: Count
    file: str
    function: str
    count: Positive


#: The length of a window in which the owners of the GIL are sampled, in seconds.
GIL_WINDOW_S = 0.6


class Gil(Record, frozen=True, kw_only=True, tag="gil"):
    """The threads that held the GIL at about ``samples`` instants of a short window; threads that never did are left
    out.

    py-spy reports only samples that found an owner: their number is estimated as its rate times the window's length.
    """

    samples: Count = msgspec.field(name="looks")
    threads: list[GilCount]
    functions: Annotated[list[GilFunction], _LISTED] = msgspec.field(default_factory=list)  # those with most samples


class ThreadCpu(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One OS thread: ``[tid, name, cpu_ratio, state, delay_ratio, count]``.

    ``cpu_ratio``: CPU time / wall time (1.0 = one core). ``delay_ratio``: time runnable but waiting for a core / wall
    time (schedstat). ``count``: more than 1 where this row sums up idle threads of one name.
    """

    tid: Count
    name: str
    cpu_ratio: Amount | None
    state: str
    delay_ratio: Amount | None = None
    count: Positive = 1

    @property
    def wanted_ratio(self) -> float:
        """The share of time in which it ran or waited for a core."""
        return (self.cpu_ratio or 0.0) + (self.delay_ratio or 0.0)


class Threads(Record, frozen=True, kw_only=True, tag="threads"):
    """The threads of one process over a window."""

    window_s: Window
    cpu_ratio: Amount | None  # of the whole process
    rss_bytes: Count | None  # resident memory of the process
    # the part of that which is its own: neither pages of files, which the kernel takes back at will, nor shared memory;
    # in one record every two seconds
    own_bytes: Count | None = None
    # of one worker, now and then: memory that it has written and shares with no other process. Pages of its trainer
    # count once the worker has written to them; in ``own_bytes`` they count from the fork on.
    private_bytes: Count | None = None
    # files that it has open, and may have open at most (RLIMIT_NOFILE); in one record every two seconds
    open_files: tuple[Count, Count] | None = None
    # of a training process: what it handed to the kernel to write since its last record, and the type of file system
    # ("nfs4") of the file that much of it went to, if that was still open
    written_bytes: Count | None = None
    written_to: str = ""
    threads: Annotated[list[ThreadCpu], _LISTED]
    folded: Count = 0  # threads not listed
    ended: Annotated[tuple[Count, ...], _LISTED] = ()  # ids of threads that have ended, the latest
    ended_cpu_s: Seconds | None = None  # CPU of its children that no record of their own holds

    @property
    def childrens_cores(self) -> float:
        """Cores that its children used beyond what their own records show."""
        return (self.ended_cpu_s or 0.0) / self.window_s


class NativeCode(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The number of samples of a thread in a library, in a phase of its process: ``[tid, library, phase, samples]``.

    ``phase``: "" if unknown, "between" if markers cannot separate forward from the work around it.
    """

    tid: Count
    library: str  # by the name that ``native_code`` has for it, or that of its file
    phase: str
    samples: Positive


class Native(Record, frozen=True, kw_only=True, tag="native"):
    """The code that a process's threads ran over a window, in Python and below it, by the kernel's samples.

    A sample stands for 1/23 s of CPU time, in the library at its address or in the kernel.
    """

    window_s: Window
    code: Annotated[list[NativeCode], _LISTED]


class GpuProcess(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A process on a GPU: ``[pid, memory_bytes, sm_ratio]``; pid 0 where the driver's pid is not valid here."""

    pid: Pid
    memory_bytes: Count | None = None
    sm_ratio: Amount | None = None


class Throttle(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A cause that held the clocks down: ``[cause, ratio]``; ``ratio`` of the window, None if it was only seen once."""

    cause: str
    ratio: Amount | None = None


#: Faulty rows of a GPU's memory are replaced at its next reset, or cannot be, as no spare rows are left.
RowRemap = Literal["none", "pending", "failed"]


#: Of a process that uses more GPUs than this, a record of each covers several windows, so that the log stays small.
GPUS_A_WINDOW = 2


class Gpu(Record, frozen=True, kw_only=True, tag="gpu"):
    """Counters of one GPU, or of one MIG instance (NVML, amdsmi); None if the GPU lacks a counter.

    Facts that seldom change (memory in all, limits of power and clock, PCIe link, capability, parent) are in the first
    record of a log file, and again in one where they have changed.
    """

    index: Index  # in PCI order; a MIG instance has that of its GPU
    uuid: str
    name: str
    util_ratio: Amount | None = None  # share of time in which a kernel was running; of a MIG instance by GPM
    util_samples: list[Amount] = msgspec.field(default_factory=list)  # as the driver buffered them, oldest first
    sm_ratio: Amount | None = None  # GPM: share of the multiprocessors that were busy, mean over the window
    occupancy_ratio: Amount | None = None  # GPM: resident warps / the most possible
    tensor_ratio: Amount | None = None  # GPM: share of time in which the tensor pipes were busy
    dram_ratio: Amount | None = None  # GPM: memory bandwidth in use / the most possible
    memory_used_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    power_w: Amount | None = None  # mean of the last second where the driver reports it, else at ``t``
    power_limit_w: Amount | None = None
    power_limit_default_w: Amount | None = None
    energy_j: Amount | None = None  # since the driver was loaded
    temperature_c: Signed | None = None
    memory_temperature_c: Signed | None = None
    sm_clock_mhz: Count | None = None
    sm_clock_max_mhz: Count | None = None
    throttle: list[str] = msgspec.field(default_factory=list)  # what holds the clocks down at ``t``
    throttled: list[Throttle] = msgspec.field(default_factory=list)  # what held them down in the window
    pcie_rx_bytes_per_s: Amount | None = None  # to the GPU
    pcie_tx_bytes_per_s: Amount | None = None  # from the GPU
    pcie_generation: Count | None = None  # of its link, the highest seen so far: an idle GPU lowers it
    pcie_width: Count | None = None  # lanes of its link, the most seen so far
    pcie_generation_max: Count | None = None  # that both the card and its slot support
    pcie_width_max: Count | None = None
    pcie_replays: Count | None = None  # packets sent again, since the driver was loaded; read once a minute
    c2c: bool | None = None  # True: copies go over NVLink-C2C to the CPU, and PCIe's counters do not see them
    nvlink_rx_bytes_per_s: Amount | None = None
    nvlink_tx_bytes_per_s: Amount | None = None
    ecc_errors: Count | None = None  # uncorrected, since the driver was loaded
    row_remap: RowRemap | None = None  # read once a minute
    xids: list[Count] = msgspec.field(default_factory=list)  # numbers of the driver errors of the window
    pids: list[Pid] = msgspec.field(default_factory=list)  # all processes on it
    processes: list[GpuProcess] = msgspec.field(default_factory=list)  # those with the most memory
    parent_uuid: str | None = None  # of a MIG instance: the GPU that it is part of
    compute_capability: Amount | None = None  # such as 9.0
    near_nodes: list[Index] | None = None  # the NUMA node that it hangs on, then the others of that socket
    chosen: bool = False  # named by the run's CUDA_VISIBLE_DEVICES
    cost_ms: Amount | None = None  # duration of the driver's calls for this record

    @property
    def memory_ratio(self) -> float | None:
        """The share of its memory that is in use."""
        used, total = self.memory_used_bytes, self.memory_total_bytes
        return used / total if used is not None and total else None


#: Facts of a GPU that seldom change: if a record has None, the value of the record before holds.
GPU_FACTS = (
    "memory_total_bytes",
    "power_limit_w",
    "power_limit_default_w",
    "sm_clock_max_mhz",
    "pcie_generation",
    "pcie_width",
    "pcie_generation_max",
    "pcie_width_max",
    "pcie_replays",
    "c2c",
    "row_remap",
    "compute_capability",
    "near_nodes",
    "parent_uuid",
)


@lru_cache(1024)
def bare_uuid(uuid: str) -> str:
    """A UUID without "GPU-" or "MIG-": torch reports that of a MIG instance without this prefix."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


def used_uuids(gpus: Iterable[Gpu], reported: Set[str], pids: Set[int]) -> set[str]:
    """UUIDs of a run's GPUs, with those of which it uses a MIG instance.

    As its processes report, whose UUIDs here are bare, as the driver lists these, or as its environment names them.
    """
    used = set()
    for gpu in gpus:
        if bare_uuid(gpu.uuid) in reported or not pids.isdisjoint(gpu.pids) or (gpu.chosen and not reported):
            used |= {gpu.uuid, gpu.parent_uuid or gpu.uuid}
    return used


class GpuPhase(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A phase on the GPU's clock: ``[name, span_ns, idle_ns, maybe_idle_ns]``.

    ``span_ns``: from the moment the GPU reached its beginning to the moment it reached its end. The GPU was idle for at
    least ``idle_ns`` of it, and at most ``maybe_idle_ns`` more: during that part the CPU was still launching the work
    of the phase, and how much of it the GPU had left at each moment is unknown.
    """

    name: str
    span_ns: Count
    idle_ns: Count
    maybe_idle_ns: Count


#: The boundaries of a loop that the GPU's clock times, in their order.
GPU_BOUNDARIES = ("fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")


class Lead(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The lead of launches at one kind of boundary.

    ``[boundary, count, min_us, median_us, max_us, idle_count, mean_us, at_least_us]``.

    ``boundary``: one of ``GPU_BOUNDARIES``. ``idle_count``: at how many of the ``count`` boundaries the stream was
    idle. The times are None where the offset of the clocks is not known well enough.
    """

    boundary: str
    count: Count
    min_us: Signed | None
    median_us: Signed | None
    max_us: Signed | None
    idle_count: Count
    mean_us: Signed | None = None  # over all boundaries; what adds up over steps, which the median does not
    at_least_us: Signed | None = None  # a bound that holds at each of them, even if the times are None


class GpuExchange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of a timed step, in which ranks exchange gradients: ``[reached_s, forward_ns, backward_ns, after_ns]``.

    On the GPU: all forward passes of the step (None where it begins with backward), the last backward pass, and from
    there to the update, which the GPU reached at ``reached_s`` on the clock of ``t``.
    """

    reached_s: Moment
    forward_ns: Count | None
    backward_ns: Count
    after_ns: Count


class GpuAccumulation(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Timed steps of three or more backward passes whose gradients add up: ``[steps, own_ns, last_ns]``, times summed.

    ``own_ns``: mean length of the passes between the first and the last, which exchange nothing under ``no_sync()``;
    ``last_ns``: length of the last.
    """

    steps: Positive
    own_ns: Count
    last_ns: Count


class GpuTime(Record, frozen=True, kw_only=True, tag="gpu_time"):
    """Steps that were timed by CUDA events and resolved in a window; to keep the cost down, not every step is timed.

    A step goes from the first boundary after an update to the next such boundary. The ``span_ns`` of the phases add up
    to ``total_ns``; only ``eval`` is not part of it.
    """

    window_s: Window
    device: Index  # torch's number of the GPU
    steps: Count = msgspec.field(name="turns")
    total_ns: Count  # length of these steps on the GPU's clock
    phases: list[GpuPhase]
    leads: list[Lead]
    lead_error_us: Amount | None = None  # half the width of the interval that holds the offset of the clocks
    bounded: bool = False  # False in old logs: all time of a phase may be idle
    exchanges: Annotated[list[GpuExchange], _LISTED] = msgspec.field(
        default_factory=list
    )  # with several ranks: the first of each second
    accumulation: GpuAccumulation | None = None  # with several ranks


class TorchMemory(Record, frozen=True, kw_only=True, tag="torch_memory"):
    """Counters of torch's CUDA caching allocator in one process: the latest of a window."""

    device: Index  # torch's number of the GPU
    allocated_bytes: Count | None = None  # in tensors
    peak_bytes: Count | None = None  # most in tensors at a time, since the program last reset that, or began
    reserved_bytes: Count | None = None  # kept by the allocator, with what is free for new tensors
    alloc_retries: Count | None = None  # allocations that had to free cached memory first, since the process began
    ooms: Count | None = None  # out-of-memory errors since the process began
    device_frees: Count | None = None  # calls of cudaFree and its like since the process began: each waits for the GPU
    pinned_bytes: Count | None = None  # of the host's memory, pinned by torch: in tensors, or kept for new ones


#: What torch.compile does: it compiles a function, recompiles one, compiles a backward pass, breaks off a graph, gives
#: up a function that has too many versions, or does without CUDA graphs.
CompilerWork = Literal["compiled", "recompiled", "backward", "graph_break", "limit", "no_cuda_graphs"]


class CompilerEvents(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Events of torch.compile that are alike: ``[what, count, total_ns, file, line, function, reason, guarded]``.

    ``line``: the first of the function, or the one at which a graph breaks. ``reason``: the guard that failed, with N
    for numbers that differ each time, or why a graph breaks. ``guarded``: the guard's line, "/me/model.py:17".
    """

    what: CompilerWork
    count: Positive
    total_ns: Count = 0
    file: str = ""
    line: Count = 0
    function: str = ""
    reason: str = ""
    guarded: str = ""


class Compiler(Record, frozen=True, kw_only=True, tag="compiler"):
    """What torch.compile did in a process in a window, as Dynamo notes it.

    Of more than 64 compilations in half a second, the first are lost.
    """

    window_s: Seconds
    events: Annotated[list[CompilerEvents], _LISTED]


class MemoryLine(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Memory that one line holds: ``[file, line, function, source, user, bytes, blocks, growth]``.

    ``growth_bytes``: bytes that each step left behind, 0 if most steps left none; None for a single step.
    """

    file: str
    line: Count
    function: str
    source: str
    user: bool
    live_bytes: Count
    blocks: Count
    growth_bytes: Count | None = None


class MemoryHistory(Record, frozen=True, kw_only=True, tag="memory_history"):
    """Memory that torch's allocator handed out over some steps and has not got back, by line, most bytes first.

    No figure includes earlier allocations.
    """

    trigger: Literal["asked", "oom"]
    device: str  # "cpu", "cuda:0"
    steps: Count  # from backward to backward; 0 after "oom": all since the first backward pass
    live_bytes: Count
    most_bytes: Count  # held at one time
    lines: Annotated[list[MemoryLine], _LISTED]
    folded_bytes: Count = 0  # of lines that are not listed
    wanted_bytes: Count | None = None  # that could not be allocated
    pause_ms: Amount | None = None  # how long the training waited for the figures


class TracedWork(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An operator or a kernel in a trace, sums over its steps: ``[name, phase, count, total_ns, gpu_ns, where]``.

    ``total_ns``: an operator's own time on the CPU, a kernel's on the GPU. ``gpu_ns``: of the kernels that an operator
    launched. ``where``: the line of the user's code with most of it.
    """

    name: str
    phase: str
    count: Count
    total_ns: Count
    gpu_ns: Count | None = None
    where: str = ""


class TracedSync(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Waits of the CPU for the GPU in a trace, sums over steps: ``[call, operator, phase, where, count, total_ns]``.

    ``call``: of the CUDA or HIP runtime. ``operator``: the innermost around the call; "" if the program itself makes
    it. ``where``: the line of the user's code. ``total_ns``: time in the call; if that began a copy and returned before
    the copy's end, only the time beyond that which a copy takes by itself.
    """

    call: str
    operator: str
    phase: str
    where: str
    count: Count
    total_ns: Count

    @property
    def name(self) -> str:
        """The operator that waited, or else the call."""
        return self.operator or self.call


class TracedFlops(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Floating-point operations of one kind in numbers of one type, in all traced steps: ``[kind, dtype, flops]``."""

    kind: str  # "product", "convolution", "recurrent", "attention"
    dtype: str
    flops: Count


class TraceTaken(Record, frozen=True, kw_only=True, tag="trace"):
    """A trace of some steps of a process was taken; the whole of it is in ``file``, the heaviest rows are here."""

    begin_s: Moment  # of its first step; of the monotonic clock
    end_s: Moment
    first_step: Count | None = None  # its number, from 0 at the start of the marker stream
    steps: Count
    wanted: Count
    rank: Index | None = None
    file: str
    pause_ms: Amount | None = None  # for which the training was held up, to stop the profiler and to write
    step_ms_before: Amount | None = None  # median before the trace
    gpu_span_ns: Count | None = None  # of all GPUs, from the first step's beginning to the last one's end
    gpu_busy_ns: Count | None = None
    operators: Annotated[list[TracedWork], _LISTED] = msgspec.field(default_factory=list)
    kernels: Annotated[list[TracedWork], _LISTED] = msgspec.field(default_factory=list)
    syncs: Annotated[list[TracedSync], _LISTED] = msgspec.field(default_factory=list)
    flops: Annotated[list[TracedFlops], _LISTED] | None = None  # None where not all of them can be counted
    folded: Count = 0  # operators, kernels and syncs that are not listed


class DiskReads(Record, frozen=True, kw_only=True, tag="disk_reads"):
    """A training's reads from disks, in logs of earlier versions: its fields are no longer read."""


class PlacedProcess(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The NUMA nodes of a training process: ``[pid, node, nodes]``, by number.

    ``node``: of the core on which its main thread ran last. ``nodes``: all whose cores that thread may use.
    """

    pid: Pid
    node: Index
    nodes: list[Index]


#: The ``ResourceUse.name`` of threads and processes.
PIDS = "pids"


class ResourceUse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A resource with a limit: ``[name, used, limit]``.

    ``name``: "pids", the threads and processes under the limit that is nearest (control group, machine); or where a
    file system is mounted ("/dev/shm", "/scratch"), in bytes.
    """

    name: str
    used: Count
    limit: Count


class MachineMemory(Record, frozen=True, kw_only=True, tag="machine_memory"):
    """Memory and cores of the machine, memory of the run's control group; None where unknown, or without a limit."""

    window_s: Seconds  # of the swap rates and the cores
    total_bytes: Count | None = None
    available_bytes: Count | None = None  # without swapping (MemAvailable)
    limit_bytes: Count | None = None  # of the control group with the least room left
    limit_used_bytes: Count | None = None  # used in that group, without the file cache that can be freed at once
    swap_in_bytes_per_s: Amount | None = None
    swap_out_bytes_per_s: Amount | None = None
    stalled_ratio: Amount | None = None  # share of the last 10 s in which some task waited for memory (PSI)
    busy_cores: Amount | None = None  # CPU time of all programs on the run's cores / wall time (1.0 = one core)
    stolen_cores: Amount | None = None  # cores that the host of a virtual machine gave to others meanwhile
    cpu_limit_cores: Amount | None = None  # of the control group with the lowest CPU limit
    held_cores: Amount | None = None  # that this limit kept from threads ready to run: throttled time / wall time
    #: Numbers of the cores that the training processes and their workers may use, as ``0-3,8``; None where tuimon may
    #: use the same ones.
    run_cores: str | None = None
    placed: Annotated[list[PlacedProcess], _LISTED] = msgspec.field(default_factory=list)  # if it has several nodes
    oom_kills: Count | None = (
        None  # processes of the run's groups that the kernel killed for memory, since tuimon began
    )
    # threads and processes, shared memory, the file systems of the training's working and temporary folders
    resources: Annotated[list[ResourceUse], _LISTED] = msgspec.field(default_factory=list)


class StandingProcess(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A process at a standstill: ``[pid, role, rank, state, io_bytes_per_s, unknown, tid, has_left, peers, listens]``.

    ``state``: of its main thread. A worker has the rank of its trainer. ``io_bytes_per_s``: what it read and wrote at
    that moment, in files and pipes alike.
    """

    pid: Pid
    role: ProcessRole
    rank: Index | None = None
    state: str = "waiting"  # a ThreadState
    io_bytes_per_s: Amount | None = None
    unknown: str | None = None  # why its stacks are not known
    tid: Count | None = None  # of the thread that trains, where it is not the main one
    has_left: bool = False  # whether that thread is outside every loop that it trained in: the training is over
    #: Processes of the run at the other end of the pipe or connection that it is blocked on, itself included; all
    #: idle. None if it is blocked on none, that end is not known, or may itself wait for something outside the run.
    peers: Annotated[list[Pid], _LISTED] | None = None
    listens: bool = False  # whether it accepts TCP connections: it may be a server, which waits by nature


class StackGroup(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Threads whose stacks were equal: ``[frames root first, outer frames left out, threads, more]``.

    ``threads`` are pairs of pid and OS thread id; ``more``: how many of them are not listed.
    """

    frames: Annotated[list[Frame], _LISTED]
    outer: Count
    threads: Annotated[list[tuple[Pid, Count]], _LISTED]
    more: Count = 0


class Standstill(Record, frozen=True, kw_only=True, tag="standstill"):
    """No training process had moved for long: the stacks of all of them and their DataLoader workers, taken once.

    Without ``processes`` it was none: one of them read or wrote files, received something, or has a busy child.
    """

    quiet_s: Seconds  # for how long nothing had moved when the stacks were taken
    processes: Annotated[list[StandingProcess], _LISTED] = msgspec.field(default_factory=list)
    groups: Annotated[list[StackGroup], _LISTED] = msgspec.field(
        default_factory=list
    )  # main threads', then the largest
    folded: Count = 0  # threads in no group that is listed
    idle: Count = 0  # Python threads with no code of the user's on their stacks, which are not listed
    moving: Annotated[list[Pid], _LISTED] = msgspec.field(default_factory=list)  # processes that moved


class RankCollective(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The position of one rank in one process group: ``[rank, group, entered, name, waits_for, members]``.

    By torch's flight recorder: ``entered`` is the number of the last collective that it has entered, ``waits_for`` that
    of the first one that has not ended, None if all have; ``name`` is that one's. ``members``: the ranks of the group.
    """

    rank: Index
    group: str  # "0:default_pg": number and description
    entered: Count
    name: str  # "all_reduce"
    waits_for: Count | None = None
    members: Annotated[list[Index], _LISTED] = msgspec.field(default_factory=list)  # empty: not known


class Collectives(Record, frozen=True, kw_only=True, tag="collectives"):
    """The report of torch's flight recorder on the ranks' collectives at the latest standstill, as it came."""

    ranks: Annotated[list[RankCollective], _LISTED] = msgspec.field(default_factory=list)


class Notice(Record, frozen=True, kw_only=True, tag="notice"):
    """The state of a source: why it delivers nothing, what it lost, or that it works again."""

    # "markers", "stacks", "native", "gpu", "amdsmi" (beside NVML), "processes", "log", "output", "terminal", "tuimon"
    source: str
    level: Literal["ok", "info", "warning"]
    message: str
    hint: str | None = None  # what the user can do


class Cost(Record, frozen=True, kw_only=True, tag="cost"):
    """Resources that tuimon itself uses in a window."""

    window_s: Seconds | None = None
    cpu_ratio: Amount  # of all its processes, with py-spy
    sampler_cpu_ratio: Amount  # of py-spy alone
    rss_bytes: Count  # resident memory
    queue_dropped: Count = 0  # records lost so far because the queue was full


class Printed(Record, frozen=True, kw_only=True, tag="printed"):
    """The progress of the run by its own output: its latest progress bar or count, and its latest loss, as printed."""

    place: str = ""  # "step 450 of 1000", "Epoch 1: 450 of 1000, 00:37 left"
    loss: str = ""


class Uncaught(Record, frozen=True, kw_only=True, tag="uncaught"):
    """The exception that ended a process of the run, as the process recorded it."""

    error: str  # the last line of its traceback: "ValueError: no such column"
    file: str = ""  # innermost line of the program that it passed through
    line: Count = 0
    function: str = ""


class Exit(Record, frozen=True, kw_only=True, tag="exit"):
    """The launched (or attached) process ended. ``exit_code`` is None when it cannot be known (attach)."""

    exit_code: Index | None  # 128+n for signal n
    signal: str | None = None  # such as "SIGKILL"
    # the exception that ended it, as noted by a process of the run, or by the last traceback in the output, if read
    last_line: str | None = None
    file: str = ""  # innermost line of the program that it passed through, if a process noted it
    line: Count = 0
    function: str = ""
    survivors: list[Pid] = msgspec.field(default_factory=list)  # pids of the run that are still alive

    @property
    def raised_at(self) -> Place | None:
        """The line that the exception came from; None if no process noted it."""
        return Place(self.file, self.line, self.function) if self.file else None

    @property
    def has_failed(self) -> bool:
        """True if it is known to have ended by an error or a signal."""
        return bool(self.exit_code or self.signal or self.file)


class Node(Record, frozen=True, kw_only=True, tag="node"):
    """A node of a run over several, as the reader of their logs sees it; ``t`` of its latest record.

    No log holds one: they are made where the logs of several nodes are read as one (``node_ids``).
    """

    number: Count  # the one that the ids of its processes hold
    host: str
    cpu_count: Cores
    state: Literal["writing", "late", "stopped", "ended"]
    behind_s: Amount  # how much older its latest record is than the newest of any node
    exit_code: Index | None = None  # of the command launched there, once it has ended


#: Any record that a log may hold.
AnyRecord: Any = Union[tuple(kind for kind in Record.__subclasses__() if kind is not Node)]  # noqa: UP007  (of 3.10)


class Place(NamedTuple):
    """A line of the user's code, as findings and panes name it."""

    file: str
    line: Count
    function: str
    source: str = ""

    @property
    def code(self) -> tuple[str, str]:
        """Its function, by file and name."""
        return self.file, self.function
