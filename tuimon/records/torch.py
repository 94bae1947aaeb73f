"""Records about torch itself: its allocator's memory, torch.compile, and traces of torch.profiler."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tuimon.records.base import BOUNDED, Amount, Count, Index, Moment, Positive, Record, Seconds


class TorchMemory(Record, frozen=True, kw_only=True, tag="torch_memory"):
    """Counters of torch's CUDA caching allocator in one process, at the end of a window. None: not in this torch."""

    device: Index  # torch's number of the GPU
    allocated_bytes: Count | None = None  # in tensors
    peak_bytes: Count | None = None  # the most in tensors at a time, since the program started or reset this peak
    reserved_bytes: Count | None = None  # held by the allocator: in tensors, or free for new ones
    # since the process began:
    alloc_retries: Count | None = None  # allocations that first had to free cached memory
    ooms: Count | None = None  # out-of-memory errors
    device_frees: Count | None = None  # calls such as cudaFree, each of which waits for the GPU
    # host memory that torch has pinned: in tensors, or free for new ones
    pinned_bytes: Count | None = None


#: The kinds of events: torch.compile compiles a function, recompiles one, compiles a backward pass, breaks a graph,
#: gives up on a function with too many versions, or cannot use CUDA graphs.
CompilerWork = Literal["compiled", "recompiled", "backward", "graph_break", "limit", "no_cuda_graphs"]


class CompilerEvents(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Equal events of torch.compile: ``[what, count, total_ns, file, line, function, reason, guarded]``."""

    what: CompilerWork
    count: Positive
    total_ns: Count = 0
    file: str = ""
    line: Count = 0  # the function's first line, or the line at which a graph breaks
    function: str = ""
    reason: str = ""  # the guard that failed, with N for numbers that differ each time, or why a graph breaks
    guarded: str = ""  # the line that the guard belongs to: "/me/model.py:17"


class Compiler(Record, frozen=True, kw_only=True, tag="compiler"):
    """The events of torch.compile in a process in a window, from Dynamo's own notes.

    If there are more than 64 compilations in half a second, the first of them are lost.
    """

    window_s: Seconds
    events: Annotated[list[CompilerEvents], BOUNDED]


class MemoryLine(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Memory that one line holds: ``[file, line, function, source, user, bytes, blocks, growth]``."""

    file: str
    line: Count
    function: str
    source: str
    user: bool
    live_bytes: Count
    blocks: Count
    growth_bytes: Count | None = None  # bytes that each step left behind, 0 if most left none; None for a single step


class MemoryHistory(Record, frozen=True, kw_only=True, tag="memory_history"):
    """Memory that torch's allocator handed out over some steps and has not got back, by line, most bytes first.

    Earlier allocations are in none of these figures.
    """

    trigger: Literal["asked", "oom"]
    device: str  # "cpu", "cuda:0"
    steps: Count  # from backward to backward; 0 after "oom": all since the first backward pass
    live_bytes: Count
    most_bytes: Count  # the most held at one time
    lines: Annotated[list[MemoryLine], BOUNDED]
    folded_bytes: Count = 0  # bytes of lines that are not listed
    wanted_bytes: Count | None = None  # the allocation that failed; None if none did
    pause_ms: Amount | None = None  # how long the training waited for these figures


class CollectiveCount(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Collectives of one kind over some steps: ``[name, calls, bytes, largest_bytes]``."""

    name: str  # "all_reduce"
    calls: Count
    bytes: Count | None = None  # of all calls, the larger of input and output each; None if its number type is unknown
    largest_bytes: Count | None = None  # of the largest call


class CollectiveCounts(Record, frozen=True, kw_only=True, tag="collective_counts"):
    """The collectives of a rank over some steps, by torch's flight recorder, the largest first."""

    steps: Count  # updates of the parameters
    collectives: Annotated[list[CollectiveCount], BOUNDED]
    pause_ms: Amount | None = None  # how long the training waited for these figures


class LineCalls(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Calls of a name at a line in one step: ``[name, file, line, calls]``."""

    name: str  # "item", "to"
    file: str
    line: Count
    calls: Count


class StepCalls(Record, frozen=True, kw_only=True, tag="step_calls"):
    """The calls that read or move tensors, of lines that make several of a name in each step, as two steps showed."""

    lines: Annotated[list[LineCalls], BOUNDED]


class TracedWork(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An operator or a kernel in a trace, summed over its steps: ``[name, phase, count, total_ns, gpu_ns, where]``.

    ``total_ns``: an operator's own time on the CPU, a kernel's on the GPU. ``gpu_ns``: time of the kernels that an
    operator launched, None for a kernel. ``where``: the line of user code with most of this time.
    """

    name: str
    phase: str
    count: Count
    total_ns: Count
    gpu_ns: Count | None = None
    where: str = ""


class TracedSync(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Waits of the CPU for the GPU in a trace, summed: ``[call, operator, phase, where, count, total_ns]``.

    ``total_ns``: time in the calls. If a call starts a copy and returns before the copy ends, only the part beyond the
    time that starting a copy takes by itself.
    """

    call: str  # of the CUDA or HIP runtime
    operator: str  # the innermost operator around the call; "" if the program itself makes it
    phase: str
    where: str  # the line of user code
    count: Count
    total_ns: Count

    @property
    def name(self) -> str:
        """The operator that waited, or else the call."""
        return self.operator or self.call


class TracedFlops(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Floating-point operations of one kind and dtype, in all traced steps: ``[kind, dtype, flops]``."""

    kind: str  # "product", "convolution", "recurrent", "attention"
    dtype: str
    flops: Count


class TraceTaken(Record, frozen=True, kw_only=True, tag="trace"):
    """A trace of some steps of a process: the heaviest rows are here, the whole trace is in ``file``."""

    begin_s: Moment  # when its first step began, on the clock of ``t``
    end_s: Moment
    first_step: Count | None = None  # number of its first step; the first step of all has 0
    steps: Count
    wanted: Count  # steps that were asked for
    rank: Index | None = None
    file: str
    pause_ms: Amount | None = None  # for how long the training waited while the profiler stopped and wrote
    step_ms_before: Amount | None = None  # median step before the trace
    gpu_span_ns: Count | None = None  # summed over GPUs, from the beginning of the first step to the end of the last
    gpu_busy_ns: Count | None = None
    gpu_computing_ns: Count | None = None  # part of it: anything but collectives ran; None without collectives
    operators: Annotated[list[TracedWork], BOUNDED] = msgspec.field(default_factory=list)
    kernels: Annotated[list[TracedWork], BOUNDED] = msgspec.field(default_factory=list)
    syncs: Annotated[list[TracedSync], BOUNDED] = msgspec.field(default_factory=list)
    flops: Annotated[list[TracedFlops], BOUNDED] | None = None  # None if not all of them can be counted
    folded: Count = 0  # operators, kernels and syncs that are not listed
