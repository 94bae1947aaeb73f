"""The events of a trace file, one chunk at a time: however large the file, some megabytes of it are in memory."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from tuimon.errors import NotATrace
from tuimon.text import plain

_GZIP = b"\x1f\x8b"
#: Read and decoded at a time.
_CHUNK_BYTES = 1 << 20
#: Bytes before the events: device properties, and the additions of programs. Kineto writes some kB.
_HEAD_BYTES = 4 << 20
#: The longest event: kernels have names of kB, collectives lists of thousands of sizes.
EVENT_BYTES = 4 << 20
#: All of a file, unpacked: more than 4 million events. What is packed a thousandfold ends here as well.
FILE_BYTES = 1 << 30
#: Between two events; it may also stand in a name or an argument, so the last few are tried.
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_TRIES = 12
OPENING = re.compile(rb'"traceEvents"\s*:\s*\[')


class TraceFile:
    """A trace as kineto writes it, or another program in the same format; packed by gzip or not.

    After ``chunks`` has ended, ``ended_early`` is why the file was not read to its end, if so.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Read up to the first event. Raises NotATrace where there is none, OSError."""
        self._name = name
        self._left = FILE_BYTES
        packed = file.read(2) == _GZIP
        file.seek(0)
        self._file: BinaryIO = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]  # it reads
        self.ended_early: str | None = None
        self.head, self._buffer = self._read_head()

    def chunks(self) -> Iterator[bytes]:
        """JSON arrays of some thousand events each."""
        buffer, self._buffer = self._buffer, b""
        while True:
            more = self._read()
            buffer += more
            if not more:
                last = _whole_events(buffer, ended=True)
                if last is None or not last[2]:
                    self.ended_early = self.ended_early or "it is cut off"
                if last is not None:
                    yield last[0]
                return
            if len(buffer) < _CHUNK_BYTES:
                continue
            found = _whole_events(buffer, ended=False)
            if found is not None:
                events, buffer, is_end = found[0], buffer[found[1] :], found[2]
                yield events
                if is_end:
                    return
            elif len(buffer) > EVENT_BYTES:
                self.ended_early = "it is damaged"
                return

    def _read_head(self) -> tuple[bytes, bytes]:
        buffer = b""
        while True:
            more = self._read()
            buffer += more
            opening = OPENING.search(buffer)
            if opening is not None:
                return buffer[: opening.start()], buffer[opening.end() :]
            if buffer.lstrip()[:1] == b"[":
                return b"", buffer.lstrip()[1:]
            if not more or len(buffer) > _HEAD_BYTES:
                raise NotATrace(
                    f"{plain(self._name)} is not a trace: it has no traceEvents",
                    "tuimon trace reads what torch.profiler exports (Chrome trace format, .json or .json.gz)",
                )

    def _read(self) -> bytes:
        """The next bytes; none at the end, where the file is damaged, or too large."""
        if self._left <= 0:
            self.ended_early = f"it is larger than {FILE_BYTES >> 30} GiB"
            return b""
        try:
            data = self._file.read(min(_CHUNK_BYTES, self._left))
        except EOFError:
            self.ended_early = "it is cut off"
            return b""
        except (zlib.error, gzip.BadGzipFile):
            self.ended_early = "it is damaged"
            return b""
        self._left -= len(data)
        return data


def _whole_events(buffer: bytes, *, ended: bool) -> tuple[bytes, int, bool] | None:
    """The events that are whole in the buffer as a JSON array, how many bytes they take, and whether no more follow.

    None where none is whole.
    """
    for between in _last_borders(buffer):
        events = b"[" + buffer[: between.start() + 1] + b"]"
        if _is_json(events):
            if ended and (rest := _closed_array(buffer[between.end() - 1 :])) is not None:
                return events[:-1] + b"," + rest[1:], len(buffer), True
            return events, between.end() - 1, False
    closed = _closed_array(buffer)
    return (closed, len(buffer), True) if closed is not None else None


def _last_borders(buffer: bytes) -> list[re.Match[bytes]]:
    """The last few places that may lie between two events, the last first."""
    window = 1 << 14
    while True:
        found = list(_BETWEEN.finditer(buffer, max(0, len(buffer) - window)))
        if len(found) >= _TRIES or window >= len(buffer):
            return found[: -_TRIES - 1 : -1]
        window *= 8


def _closed_array(buffer: bytes) -> bytes | None:
    """The array of events that ends in this buffer; None where it does not."""
    text = "[" + buffer.decode("utf-8", "replace")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return text[:end].encode("utf-8", "replace")


def _is_json(events: bytes) -> bool:
    try:
        msgspec.json.decode(events, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
