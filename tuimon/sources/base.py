"""The base of all sources: each reads something outside, on a thread of its own, and turns it into records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.records import Frame, Notice, Record, StandingProcess

#: Seconds after which a tool, a driver or an agent that did not work is tried again.
RETRY_S = 30.0
#: Seconds between two records of figures that nobody needs every second: each is a line of the log, or holds a lock.
SELDOM_S = 2.0


class Suspicion(Struct, frozen=True, gc=False):
    """Nothing has moved since a moment (s, monotonic): the processes to inspect, ranks first, as far as known.

    ``loops``: where each trained, its stacks in backward or an update, root first.
    """

    since_s: float
    processes: tuple[StandingProcess, ...]
    loops: Mapping[int, Sequence[Sequence[Frame]]] = {}


class Source:
    """Reads one stream. The source's own thread calls ``read`` every ``period_s``, and ``close`` at the end.

    The monitor's requests to it are in the process table.
    """

    #: for people, and for Notice.source: "markers", "stacks", "gpu" ...
    name: str
    #: seconds between two calls of ``read``; may change between calls
    period_s: float
    #: the share (0..1) of its log that it has read; None once it has read everything, or if it plays at a pace
    read_ratio: float | None = None

    def read(self) -> Iterable[Record]:
        """The records that are due now; may be none. Raises Done when there will be no more (end of a log)."""
        raise NotImplementedError

    def close(self) -> None:
        """Release all that the source holds; called once, on the same thread, after the last ``read``."""


class Done(Exception):
    """A source has reached its end."""


class Problem(NamedTuple):
    """Why a source shows nothing, and the next step.

    ``passing``: it may go away by itself. ``expected``: no reason to worry, as on a machine without a GPU.
    ``denied``: another process may not read it; the process itself may report it.
    """

    message: str
    hint: str | None = None
    passing: bool = False
    expected: bool = False
    denied: bool = False

    def notice(self, source: str, t: float) -> Notice:
        level: Literal["info", "warning"] = "info" if self.expected else "warning"
        return Notice(t=t, pid=0, source=source, level=level, message=self.message, hint=self.hint)


class NoticeSource(Source):
    """A source of a few notices that are known from the start."""

    name = "options"
    period_s = 0.2

    def __init__(self, notices: Iterable[Notice]) -> None:
        self._notices: list[Record] = list(notices)

    def read(self) -> list[Record]:
        """All notices, once. Raises Done after that."""
        if not self._notices:
            raise Done
        notices, self._notices = self._notices, []
        return notices
