"""Records of samples: stacks, owners of the GIL, and libraries below Python."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tuimon.records.base import BOUNDED, Amount, Count, Positive, Record, Seconds, Window

#: The object that a line keeps each time it runs: a tensor with its graph, a figure, a hook, or another one.
Kept = Literal["graph", "figure", "hook", "object"]


class KeepingLine(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line that keeps one more of something, step after step: ``[line, function, source, kept]``."""

    line: Count
    function: str
    source: str
    kept: Kept = "graph"


#: The number of threads that share one of torch's operations on the CPU, the number of workers, the cores that may be
#: used, the function that traces the program, or the one that autograd calls.
Setting = Literal["threads", "workers", "cores", "tracer", "hook"]


class SettingLine(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line of code that sets something: ``[what, line, function, source]``."""

    what: Setting
    line: Count
    function: str
    source: str


class Frame(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line of code on a stack.

    ``[file, line, function, source, user, inside, packages, no_grad, branch, counts, loop, keeping, polls, loops,
    skips]``.
    The source, and the facts read from it, are given for user code and for the few lines of libraries that need them.
    """

    file: str
    line: Count
    function: str
    source: str = ""
    user: bool = False  # True if the file is outside the standard library, site-packages and tuimon
    inside: str = ""  # no longer used; in older logs: names from the blocks around the line
    packages: str = ""  # no longer used; in older logs: the packages that do the line's work
    # first and last line of the function or ``with`` block around it that disables gradients; None: unknown
    no_grad: tuple[Count, Count] | None = None
    branch: tuple[Count, Count] | None = None  # no longer used; in older logs: lines of an ``if`` around it
    counts: tuple[SettingLine, ...] = ()  # in the first frame of a file: its lines that make such a setting
    loop: bool = False  # True if it is known to be in a ``for`` or ``while`` of its function
    keeping: tuple[KeepingLine, ...] = ()  # in the first frame of a file: its lines that keep objects
    polls: bool = False  # True if it is known to be in a ``while`` that does nothing but wait
    loops: Count = 0  # ``for`` and ``while`` statements of its function around it; 0 also in older logs
    skips: bool = False  # True if it is the head of a ``for`` that takes one in n items, by their number


class Frames(Record, frozen=True, kw_only=True, tag="frames"):
    """Frames that are new in this log; their ids count up from ``first``, over all processes."""

    first: Count
    frames: list[Frame]


class StackCount(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The number of a thread's samples with one stack: ``[tid, thread name, frame ids root first, count]``."""

    tid: Count
    thread: str
    frames: Annotated[list[Count], BOUNDED]
    count: Positive


class LoopStack(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stack of the training thread in backward or in the optimizer's step: ``[boundary, frame ids]``.

    A hook there took it, or it is the first sample in backward. It includes all frames of libraries.
    """

    boundary: Literal["backward", "optimizer"]
    frames: Annotated[list[Count], BOUNDED]  # root first


class Stacks(Record, frozen=True, kw_only=True, tag="stacks"):
    """Stack samples of one process over a window, taken by py-spy (nonblocking), or by the agent inside the process."""

    window_s: Seconds
    rate_hz: Amount | None = None  # achieved, not requested
    samples: Count  # instants at which all threads were sampled
    stacks: Annotated[list[StackCount], BOUNDED]
    folded: Count = 0  # samples of rare stacks, which are not listed, summed over threads
    failed: Count = 0  # samples that py-spy could not read
    cost_cpu_s: Amount = 0.0  # CPU time of the py-spy process, or of the agent's thread
    lost: bool = False  # True if py-spy failed, was killed or hung: then the window holds no samples
    parked: list[tuple[Count, str]] = msgspec.field(default_factory=list)  # idle Python threads: (tid, name), each once
    # times that the training entered backward, or its update if it has none; None: samples too far apart
    cycles: Count | None = None
    in_process: bool = False  # taken by the agent, because py-spy may not read the process
    loop: list[LoopStack] = msgspec.field(default_factory=list)  # once they are known, and again when they change


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
    """The threads that held the GIL in samples of a short window; threads that never did are left out.

    py-spy reports only samples in which some thread held it. So ``samples`` is estimated: its rate times the window.
    """

    samples: Count = msgspec.field(name="looks")
    threads: list[GilCount]
    functions: Annotated[list[GilFunction], BOUNDED] = msgspec.field(default_factory=list)  # those with most samples


class NativeCode(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The number of a thread's samples in a library, by phase of its process: ``[tid, library, phase, samples]``.

    ``phase``: "" if unknown, "between" if markers cannot separate forward from the work around it.
    """

    tid: Count
    library: str  # its name in ``native_code``, or else its file name
    phase: str
    samples: Positive


class Native(Record, frozen=True, kw_only=True, tag="native"):
    """The code that a process's threads ran over a window, in Python and below it, by the kernel's samples.

    A sample stands for 1/23 s of CPU time, in the library at its address or in the kernel.
    """

    window_s: Window
    code: Annotated[list[NativeCode], BOUNDED]
