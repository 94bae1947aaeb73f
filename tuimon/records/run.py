"""Records about a run as a whole: its header, its marks, notices and cost, its output and its end."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuimon.records.base import Amount, Cores, Count, Index, Moment, Pid, Place, Record, Seconds, Window

SCHEMA = 1


class Header(Record, frozen=True, kw_only=True, tag="header", omit_defaults=False):
    """First line of a log: where and how this session was recorded."""

    schema: int = SCHEMA
    mode: Literal["run", "attach"]
    command: list[str]
    host: str
    wall_unix_s: Moment  # the wall clock at ``t``, in seconds since 1970
    interval_s: Window
    cpu_count: Cores
    versions: dict[str, str]  # by name: "tuimon", "python", "py-spy", ...
    run: str | None = None  # the run's name, the same on all its nodes: --run NAME, or the id of scheduler or launcher
    node: Index | None = None  # this node's number within the run, as the scheduler or launcher counts

    @property
    def late_after_s(self) -> float:
        """A log whose latest record is older than this is late: even a quiet run writes every 10 s."""
        return 15.0 + 2 * self.interval_s

    def moment_s(self, unix_s: float) -> Moment:
        """A moment of the wall clock, on the clock of the records."""
        return self.t + unix_s - self.wall_unix_s


class Mark(Record, frozen=True, kw_only=True, tag="mark"):
    """The user marked this moment by ``tuimon.mark(name)`` or an NVTX mark."""

    name: str


class Notice(Record, frozen=True, kw_only=True, tag="notice"):
    """The state of a source: why it delivers nothing, what it lost, or that it works again."""

    # "markers", "stacks", "native", "gpu", "amdsmi" (in addition to NVML), "processes", "counts", "log", "output",
    # "terminal", "tuimon"
    source: str
    level: Literal["ok", "info", "warning"]
    message: str
    hint: str | None = None  # advice for the user


class Cost(Record, frozen=True, kw_only=True, tag="cost"):
    """Resources that tuimon itself uses in a window."""

    window_s: Seconds | None = None
    cpu_ratio: Amount  # CPU of all its processes, py-spy included
    sampler_cpu_ratio: Amount  # CPU of py-spy alone
    rss_bytes: Count  # resident memory
    queue_dropped: Count = 0  # records lost so far because the queue was full


class Printed(Record, frozen=True, kw_only=True, tag="printed"):
    """The latest progress bar or count in the run's output, and the latest loss, both as printed."""

    place: str = ""  # "step 450 of 1000", "Epoch 1: 450 of 1000, 00:37 left"
    loss: str = ""


class Uncaught(Record, frozen=True, kw_only=True, tag="uncaught"):
    """The exception that ended a process of the run, as the process recorded it."""

    error: str  # the last line of its traceback: "ValueError: no such column"
    file: str = ""  # the innermost line of the program that it passed through
    line: Count = 0
    function: str = ""


class Exit(Record, frozen=True, kw_only=True, tag="exit"):
    """The launched (or attached) process ended. ``exit_code`` is None if it cannot be known (attach)."""

    exit_code: Index | None  # 128 + n for signal n
    signal: str | None = None  # such as "SIGKILL"
    # the exception that ended it: as a process of the run recorded it, or else the last traceback in the output
    last_line: str | None = None
    file: str = ""  # the innermost line of the program that it passed through; "" if no process recorded it
    line: Count = 0
    function: str = ""
    survivors: list[Pid] = msgspec.field(default_factory=list)  # processes of the run that are still alive

    @property
    def raised_at(self) -> Place | None:
        """The line that the exception came from; None if no process recorded it."""
        return Place(self.file, self.line, self.function) if self.file else None

    @property
    def has_failed(self) -> bool:
        """True if it is known to have ended by an error or a signal."""
        return bool(self.exit_code or self.signal or self.file)


class Node(Record, frozen=True, kw_only=True, tag="node"):
    """A machine of a run on several, at ``t`` of its latest record.

    No log holds this record: it is made when the logs of several nodes are read as one (``node_ids``).
    """

    number: Count  # the node's number, which is also part of its processes' ids
    host: str
    cpu_count: Cores
    state: Literal["writing", "late", "stopped", "ended"]
    behind_s: Amount  # how much older its latest record is than the newest of any node
    exit_code: Index | None = None  # exit code of the command launched there; None until it has ended
