"""Records about processes and their machine: facts, threads, CPU, memory, and a standstill of all of them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tuimon.records.base import BOUNDED, Amount, Count, Index, Moment, Pid, Positive, Record, Seconds, Window
from tuimon.records.gpus import Gpu, bare_uuid
from tuimon.records.stacks import Frame

#: ``child``: a Python process that a trainer forked or spawned, and that was not seen to load for a DataLoader.
ProcessRole = Literal["trainer", "worker", "child", "other"]
ThreadState = Literal["running", "waiting", "disk", "stopped", "ended"]
#: The ``markers_reason`` of a process that may yet have markers.
NO_TORCH_YET = "no torch imported yet"


class OptimizerFacts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An optimizer of a training, read once, after its first step. None if a fact is unknown."""

    name: str  # name of its class
    package: str  # package that defines the class: "torch", "bitsandbytes", "__main__"
    fused: bool | None = None  # setting of its first parameter group; None: no such setting, or torch decides
    groups: Count | None = None  # number of its parameter groups
    tensors: Count | None = None  # number of its parameters that require gradients
    elements: Count | None = None  # elements of these parameters, together
    device: str | None = None  # device of all its parameters, such as "cuda"; None if they are on several
    parameter_bytes: Count | None = None  # on this device, as are the next two
    gradient_bytes: Count | None = None
    state_bytes: Count | None = None


class UnusedGradients(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Gradients that backward computes although no optimizer uses them: ``[tensors, of_tensors, inputs, of_inputs]``.

    ``tensors``: how many of the graph's ``of_tensors`` parameters have such a gradient. ``inputs``: how many of the
    ``of_inputs`` inputs of its matrix products and convolutions have a gradient that leads to no parameter of an
    optimizer; those in compiled graphs are not known, and not counted.
    """

    tensors: Count
    of_tensors: Positive
    inputs: Count
    of_inputs: Count


class Warned(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A known warning that Python issued in a process, with the line that caused it: ``[text, file, line]``."""

    text: str  # a part of the warning
    file: str
    line: Count


class Process(Record, frozen=True, kw_only=True, tag="process"):
    """A process of the run appeared, changed or ended: all facts about it, not only those that changed."""

    ppid: Pid
    start_unix_s: Moment  # seconds since 1970; together with the pid it identifies the process
    command: list[str]
    role: ProcessRole
    markers: bool  # True if its ring is being read
    markers_reason: str | None = None  # why it is not, as a phrase for the user
    rank: Index | None = None
    world_size: Index | None = None
    python: str | None = None  # version
    torch: str | None = None  # version; None until torch is imported
    gpu_uuids: list[str] = msgspec.field(default_factory=list)  # the GPUs that it reports to use; empty: not known
    parameter_dtypes: list[str] = msgspec.field(default_factory=list)  # dtypes that optimizers update: "float32", ...
    tf32: bool | None = None  # True if float32 matrix products may use TF32
    cudnn_tf32: bool | None = None  # True if float32 convolutions and recurrent layers may use TF32
    # dtypes of the results of matrix products and convolutions, from the graphs of the first forward passes:
    # "bfloat16" or "float16" with float32 parameters means autocast, or casts by hand
    matmul_dtypes: list[str] = msgspec.field(default_factory=list)
    optimizers: list[OptimizerFacts] = msgspec.field(default_factory=list)  # at most four, once they have stepped
    unused_gradients: UnusedGradients | None = None
    warnings: list[Warned] = msgspec.field(default_factory=list)
    intra_op_threads: Count | None = None  # threads that share one operation on the CPU: ``torch.get_num_threads()``
    omp_num_threads: Count | None = None  # OMP_NUM_THREADS, as the process was started
    debug_settings: list[str] = msgspec.field(default_factory=list)  # those that slow each step: "anomaly_detection"
    vectors: str | None = None  # vector units of the CPU for products: "amx", "avx512_bf16", "avx512", "avx2"
    # updates and epochs that a Trainer (transformers', Lightning's) still planned after its first update
    planned_steps: Count | None = None
    planned_epochs: Count | None = None
    ended: bool = False

    @property
    def serves(self) -> bool:
        """True if it is a DataLoader worker, or another child of a training process."""
        return self.role in ("worker", "child")

    def uses(self, gpu: Gpu) -> bool:
        """True if it reports to use this GPU or MIG instance; False also if it has reported none yet."""
        return bool(self.gpu_uuids) and bare_uuid(gpu.uuid) in map(bare_uuid, self.gpu_uuids)


class ThreadCpu(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An OS thread: ``[tid, name, cpu_ratio, state, delay_ratio, count]``.

    ``cpu_ratio``: CPU time / wall time (1.0 = one core). ``delay_ratio``: time for which it was ready to run and waited
    for a core / wall time (schedstat). ``count``: the number of idle threads of one name that this row sums up.
    """

    tid: Count
    name: str
    cpu_ratio: Amount | None
    state: str  # a ThreadState
    delay_ratio: Amount | None = None
    count: Positive = 1

    @property
    def wanted_ratio(self) -> float:
        """The share of time in which it ran or waited for a core."""
        return (self.cpu_ratio or 0.0) + (self.delay_ratio or 0.0)


class ThreadFaults(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The page faults of an OS thread: ``[tid, minor_hz, major_hz]``.

    A minor fault gives the thread a page of memory, as at the first touch of memory that it asked for; a major one
    waits until the page has been read from a disk.
    """

    tid: Count
    minor_hz: Amount
    major_hz: Amount


class Threads(Record, frozen=True, kw_only=True, tag="threads"):
    """The threads of one process over a window, with its memory and its files."""

    window_s: Window
    cpu_ratio: Amount | None  # CPU of the whole process
    rss_bytes: Count | None  # resident memory of the process
    # its own part of that memory: without shared memory, and without pages of files, which the kernel can drop at will;
    # in one record every two seconds
    own_bytes: Count | None = None
    # memory that a DataLoader worker has written to and shares with no other process; of one worker now and then.
    # Pages from its trainer count here once the worker has written to them, in ``own_bytes`` from the fork on.
    private_bytes: Count | None = None
    # (files that it has open, the most that it may have open: RLIMIT_NOFILE); in one record every two seconds
    open_files: tuple[Count, Count] | None = None
    # bytes that a training process gave the kernel to write since its last record, and the file system ("nfs4") to
    # which much of it went, "" if that file was no longer open
    written_bytes: Count | None = None
    written_to: str = ""
    threads: Annotated[list[ThreadCpu], BOUNDED]
    faults: Annotated[list[ThreadFaults], BOUNDED] | None = None  # of those threads, if they had any
    folded: Count = 0  # threads that are not listed
    ended: Annotated[tuple[Count, ...], BOUNDED] = ()  # ids of the latest threads that ended
    ended_cpu_s: Seconds | None = None  # CPU time of children that is in no record of their own

    @property
    def childrens_cores(self) -> float:
        """Cores that its children used beyond what their own records show."""
        return (self.ended_cpu_s or 0.0) / self.window_s


class DiskReads(Record, frozen=True, kw_only=True, tag="disk_reads"):
    """A training's reads from disks, in logs of earlier versions: its fields are no longer read."""


class PlacedProcess(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The NUMA nodes of a training process, by number: ``[pid, node, nodes]``.

    ``node``: that of the core on which its main thread ran last. ``nodes``: all whose cores this thread may use.
    """

    pid: Pid
    node: Index
    nodes: list[Index]


#: The ``ResourceUse.name`` of threads and processes.
PIDS = "pids"


class ResourceUse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A resource with a limit: ``[name, used, limit]``.

    ``name``: "pids" for the number of threads and processes under the limit that is nearest (that of a control group or
    of the machine), or the mount point of a file system ("/dev/shm", "/scratch"), whose figures are bytes.
    """

    name: str
    used: Count
    limit: Count


class MachineMemory(Record, frozen=True, kw_only=True, tag="machine_memory"):
    """Memory and cores of the machine, and the limits of the run's control groups. None: unknown, or no limit."""

    window_s: Seconds  # window of the swap rates and the cores
    total_bytes: Count | None = None
    available_bytes: Count | None = None  # available without swapping (MemAvailable)
    limit_bytes: Count | None = None  # limit of the control group with the least memory left
    limit_used_bytes: Count | None = None  # memory used in that group, without file cache that can be freed at any time
    swap_in_bytes_per_s: Amount | None = None
    swap_out_bytes_per_s: Amount | None = None
    stalled_ratio: Amount | None = None  # share of the last 10 s in which some task waited for memory (PSI)
    busy_cores: Amount | None = None  # CPU time of all programs on the run's cores / wall time (1.0 = one core)
    stolen_cores: Amount | None = None  # cores that the host of this virtual machine gave to others
    cpu_limit_cores: Amount | None = None  # CPU limit of the control group with the lowest one
    held_cores: Amount | None = None  # time for which this limit stopped threads that were ready to run / wall time
    #: Numbers of the cores that the training processes and their workers may use, such as ``0-3,8``; None if these are
    #: the cores that tuimon may use as well.
    run_cores: str | None = None
    placed: Annotated[list[PlacedProcess], BOUNDED] = msgspec.field(default_factory=list)  # on several NUMA nodes only
    oom_kills: Count | None = None  # processes in the run's groups killed by the kernel for memory, since tuimon began
    # threads and processes, shared memory, the file systems of the training's working and temporary folders
    resources: Annotated[list[ResourceUse], BOUNDED] = msgspec.field(default_factory=list)


class StandingProcess(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A process at a standstill: ``[pid, role, rank, state, io_bytes_per_s, unknown, tid, has_left, peers, listens]``.

    ``state``: that of its main thread. ``io_bytes_per_s``: its reads and writes at that moment, of files and pipes.
    """

    pid: Pid
    role: ProcessRole
    rank: Index | None = None  # a worker has the rank of its trainer
    state: str = "waiting"  # a ThreadState
    io_bytes_per_s: Amount | None = None
    unknown: str | None = None  # why its stacks are not known; None if they are
    tid: Count | None = None  # the thread that trains, if it is not the main thread
    has_left: bool = False  # True if this thread is outside all its training loops: the training is over
    #: The run's processes at the other end of the pipe or connection on which it is blocked, all of them idle, itself
    #: included if it has that end, too. None if it is not blocked on one, or if the other end is not known, or if a
    #: process there may be waiting for something outside the run.
    peers: Annotated[list[Pid], BOUNDED] | None = None
    listens: bool = False  # True if it accepts TCP connections: it may be a server, which waits by nature


class StackGroup(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Threads whose stacks were equal: ``[frames, outer, threads, more]``."""

    frames: Annotated[list[Frame], BOUNDED]  # root first
    outer: Count  # frames outside these, which are left out
    threads: Annotated[list[tuple[Pid, Count]], BOUNDED]  # (pid, OS thread id)
    more: Count = 0  # threads that are not listed


class Standstill(Record, frozen=True, kw_only=True, tag="standstill"):
    """No training process had moved for long: the stacks of all of them and of their DataLoader workers, taken once.

    If ``processes`` is empty, something moved: one of them read or wrote files, received data or has a busy child.
    """

    quiet_s: Seconds  # for how long nothing had moved when the stacks were taken
    processes: Annotated[list[StandingProcess], BOUNDED] = msgspec.field(default_factory=list)
    groups: Annotated[list[StackGroup], BOUNDED] = msgspec.field(default_factory=list)  # main threads, then the largest
    folded: Count = 0  # threads in groups that are not listed
    idle: Count = 0  # Python threads without user code on their stacks, which are not listed
    moving: Annotated[list[Pid], BOUNDED] = msgspec.field(default_factory=list)  # processes that did move


class RankCollective(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The position of a rank in a process group, by torch's flight recorder.

    ``[rank, group, entered, name, waits_for, members]``.
    """

    rank: Index
    group: str  # number and description: "0:default_pg"
    entered: Count  # number of the last collective that the rank has entered
    name: str  # "all_reduce": that of ``waits_for``, or of ``entered`` if all have ended
    waits_for: Count | None = None  # number of the first collective that has not ended; None if all have
    members: Annotated[list[Index], BOUNDED] = msgspec.field(default_factory=list)  # ranks of the group; empty: unknown


class Collectives(Record, frozen=True, kw_only=True, tag="collectives"):
    """The collectives of all ranks at the latest standstill, as torch's flight recorder reported them."""

    ranks: Annotated[list[RankCollective], BOUNDED] = msgspec.field(default_factory=list)
