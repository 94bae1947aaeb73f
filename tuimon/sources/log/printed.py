"""How far a run has come, as its own output shows it: a progress bar, the latest loss."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence

from tuimon.records import Printed, Record
from tuimon.sources.base import Source
from tuimon.sources.log.output import OutputTail
from tuimon.text import plain

#: tqdm's bar with a known end: ``Epoch 1:  45%|████▌     | 450/1000 [00:30<00:37, 14.8it/s]``.
_BAR = re.compile(
    r"^(?P<what>[^|%]{0,60}?):?\s*\d{1,3}%\|.*?\|\s*(?P<done>\d+)/(?P<all>\d+)\s*"
    r"\[[\d:]+<(?P<left>[\d:]+|\?),\s*(?:\?|[\d.]+)\s*(?:it/s|s/it)"
)
#: ``step 450/1000``, ``iter 450 of 1000``, and the same of epochs.
_COUNT = re.compile(r"\b(?P<what>step|iter|iteration|epoch)s?\b\W{0,3}(?P<done>\d+)\s*(?:/|of)\s*(?P<all>\d+)", re.I)
_LOSS = re.compile(
    r"(?<![\w-])(?:train(?:ing)?[ _/])?loss['\"]?\s*[:=]?\s*(?P<loss>\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.%])", re.I
)
#: The end of the output in which they are searched for, and how many of its rows.
_BYTES = 8 * 1024
_ROWS = 40
#: A record at most so often: it is a line of the log.
_EVERY_S = 2.0
_LINE_ENDS = re.compile(r"[\r\n]+")


class PrintedSource(Source):
    """Reads the end of a launched run's output."""

    name = "output"

    def __init__(
        self, path: str, pid: int, period_s: float = _EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.period_s = period_s
        self._tail = OutputTail(path)
        self._pid = pid
        self._clock = clock
        self._latest = ("", "")

    def read(self) -> Iterator[Record]:
        """Place and loss, where one of them has changed."""
        data = self._tail.read(_BYTES)
        if not data:
            return
        rows = [plain(row) for row in _LINE_ENDS.split(data.decode("utf-8", "replace"))]
        place, loss = progress_of(rows[-_ROWS:])
        latest = (place or self._latest[0], loss or self._latest[1])
        if latest != self._latest:
            self._latest = latest
            yield Printed(t=self._clock(), pid=self._pid, place=latest[0], loss=latest[1])


def progress_of(rows: Sequence[str]) -> tuple[str, str]:
    """The last bar, or count of steps, and the last loss among rows of output; empty where they show none."""
    place = next(filter(None, map(_place, reversed(rows))), "")
    loss = next((found[-1]["loss"] for row in reversed(rows) if (found := list(_LOSS.finditer(row)))), "")
    return place, loss


def _place(row: str) -> str:
    bar = _BAR.search(row)
    if bar is not None:
        what = plain(bar["what"]).strip()
        left = f", {bar['left']} left" if bar["left"] != "?" else ""
        return f"{what}{': ' * bool(what)}{bar['done']} of {bar['all']}{left}"
    count = _COUNT.search(row)
    return f"{count['what'].lower()} {count['done']} of {count['all']}" if count is not None else ""
