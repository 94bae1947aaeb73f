"""Follows the output file of a launched run, searches it for tracebacks and progress, and keeps it short."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence

from tuimon.records import Printed, Record
from tuimon.sources.base import SELDOM_S, Source
from tuimon.text import plain

#: Bytes of a run's output that are kept; older output is freed on the disk.
KEEP_BYTES = 64 * 1024 * 1024
#: Bytes at the end that are searched for the last traceback.
TRACEBACK_BYTES = 64 * 1024

#: Begins a traceback.
TRACEBACK = "Traceback (most recent call last)"

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, linux/falloc.h
_PUNCH_BYTES = 1024 * 1024  # output is freed in units of this size
# The line that ends a traceback: an exception's name at the margin, with or without a message.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z_a-z]\w*(?::(?: .*)?)?$")


class OutputTail:
    """Follows one growing file. A missing file is an empty one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.skipped_bytes = 0  # never shown, as more was written than could be read
        self._offset = 0
        self._punched = 0
        self._can_punch = True

    def read(self, max_bytes: int = 65536) -> bytes:
        """The output since the last call: at most the newest ``max_bytes``; the rest counts as skipped."""
        size = self._size()
        if size < self._offset:  # truncated: begin again
            self._offset = 0
        if size == self._offset:
            return b""
        if size - self._offset > max_bytes:
            self.skipped_bytes += size - max_bytes - self._offset
            self._offset = size - max_bytes
        data = self._read_at(self._offset, max_bytes)
        self._offset += len(data)
        return data

    def last_traceback_line(self) -> str | None:
        """The last line of the last Python traceback near the end, without control characters."""
        size = self._size()
        start = max(size - TRACEBACK_BYTES, 0)
        return last_traceback_line(self._read_at(start, size - start))

    def trim(self, keep_bytes: int = KEEP_BYTES) -> None:
        """Free all but the newest ``keep_bytes`` on the disk; offsets stay valid.

        Does nothing if the file system does not support that.
        """
        end = (self._size() - keep_bytes) // _PUNCH_BYTES * _PUNCH_BYTES
        if not self._can_punch or end <= self._punched:
            return
        with contextlib.suppress(OSError):
            self._can_punch = _punch_hole(self.path, self._punched, end - self._punched)
            self._punched = end

    def _size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def _read_at(self, offset: int, length: int) -> bytes:
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(offset)
                return file.read(length) or b""
        except OSError:
            return b""


def last_traceback_line(output: bytes) -> str | None:
    """The line with the exception of the last traceback in ``output``; None if there is none."""
    lines = output.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    begins = [number for number, line in enumerate(lines) if TRACEBACK in line]
    if not begins:
        return None
    for line in lines[begins[-1] + 1 :]:
        text = plain(line).rstrip()
        # Frames are indented, and exception groups draw a tree before them.
        if text and not text.startswith((" ", "|", "+")) and _EXCEPTION.match(text):
            return text[:500]
    return None


def _punch_hole(path: str, offset: int, length: int) -> bool:
    import ctypes  # noqa: PLC0415  (few runs print or log so much; 0.5 MB)

    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        return False
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return bool(fallocate(file, _PUNCH_HOLE_KEEP_SIZE, offset, length) == 0)
    finally:
        os.close(file)


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
_LINE_ENDS = re.compile(r"[\r\n]+")


class PrintedSource(Source):
    """Reads the end of a launched run's output."""

    name = "output"

    def __init__(
        self, path: str, pid: int, period_s: float = SELDOM_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.period_s = period_s
        self._tail = OutputTail(path)
        self._pid = pid
        self._clock = clock
        self._latest = ("", "")

    def read(self) -> Iterator[Record]:
        """A record of place and loss if one of them has changed."""
        data = self._tail.read(_BYTES)
        if not data:
            return
        rows = [plain(row) for row in _LINE_ENDS.split(data.decode("utf-8", "replace"))]
        place, loss = printed_progress(rows[-40:])
        latest = (place or self._latest[0], loss or self._latest[1])
        if latest != self._latest:
            self._latest = latest
            yield Printed(t=self._clock(), pid=self._pid, place=latest[0], loss=latest[1])


def printed_progress(rows: Sequence[str]) -> tuple[str, str]:
    """The last progress bar or count of steps, and the last loss, in rows of output; empty if they show none."""
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
