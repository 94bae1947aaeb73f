"""One log of a run on several nodes: its records in order, and how far it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tuimon.errors import UnreadableLog
from tuimon.records import Exit, Header, Node, Record
from tuimon.sources.base import Backlog
from tuimon.sources.log.joined.identity import FrameIds, Identity
from tuimon.sources.log.reader import LogStream

#: A log whose latest record is older than this and two windows, against the newest of all nodes, is late: windows of a
#: steady run are 10 s long and are written some seconds later.
LATE_S = 15.0
#: Lag from which nothing more is expected of it: a monitor that was killed, a node that is gone.
STOPPED_S = 60.0


class NodeLog:
    """Reads the log of a node, on into what is appended."""

    def __init__(self, path: str, number: int, label: str, frames: FrameIds) -> None:
        """``number``: of the node, in the ids of its processes; ``label``: its name. Raises NotALog."""
        self.path = path
        self.number = number
        self.label = label
        self.exit: Exit | None = None
        self.failure: UnreadableLog | None = None  # why it is not read on
        self._stream = LogStream(path)
        self._blocks = self._stream.blocks()
        self.waiting: deque[Record] = deque()  # those that have been read and are to be passed on
        self.at_end = False  # whether there was no more to read
        self.header: Header = self._stream.header
        self.identity = Identity(number, frames)
        #: seconds to add to a moment of this log, to get the wall clock, which all nodes set by the network
        self.shift_s = self.header.wall_unix_s - self.header.t
        self.latest_s = self._read_s = self.header.t  # of the records that were passed on; of those that were read

    @property
    def latest_unix_s(self) -> float:
        """The moment of its latest record, by that clock."""
        return self.latest_s + self.shift_s

    @property
    def read_unix_s(self) -> float:
        """Time of the latest record that was read."""
        return self._read_s + self.shift_s

    def read_ahead(self, count: int) -> None:
        """Read so many records now, or as many as there are, for ``waiting``."""
        while len(self.waiting) < count:
            records = self._next_block()
            self.at_end = records is None
            if records is None:
                self._blocks = self._stream.blocks()
                return
            self.waiting.extend(records)
            self._read_s = max(self._read_s, *(record.t for record in records))

    def _next_block(self) -> list[Record] | None:
        try:
            return next(self._blocks, None)
        except UnreadableLog as error:
            self.failure = error
            return None

    def pop(self) -> None:
        """The first record that waits is passed on."""
        t = self.waiting.popleft().t
        self.latest_s = max(self.latest_s, t)

    def last_records(self) -> Iterator[Record]:
        """The content of a last line without its end, once nothing more will come."""
        return self._stream.last_records()

    def backlog(self) -> Backlog:
        """How far it has been read."""
        return self._stream.backlog()

    def count_skipped(self) -> int:
        """Lines that hold no record known here, so far."""
        return self._stream.count_skipped()

    def node(self, newest_unix_s: float) -> Node:
        """The node as of now; ``newest_unix_s``: the newest record of any node."""
        behind_s = max(0.0, newest_unix_s - self.latest_unix_s)
        limit_s = LATE_S + 2 * self.header.interval_s
        state = "ended" if self.exit else "stopped" if behind_s > max(STOPPED_S, limit_s) else "writing"
        return Node(
            t=self.latest_unix_s,
            pid=0,
            number=self.number,
            host=self.label,
            cpu_count=self.header.cpu_count,
            state="late" if state == "writing" and behind_s > limit_s else state,  # type: ignore[arg-type]  # literals
            behind_s=behind_s,
            exit_code=self.exit.exit_code if self.exit else None,
        )

    def close(self) -> None:
        """Close its file."""
        self._stream.close()
