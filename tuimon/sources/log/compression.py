"""The names of logs, and compressed logs: gzip, and Zstandard, which tuimon once wrote, if Python can read it."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias

from tuimon.errors import UnreadableLog
from tuimon.text import plain

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

SUFFIX = ".jsonl"
#: A log whose name ends so is compressed: 1 to 2 MB an hour of one rank in place of 5 to 13.
COMPRESSED = ".gz"
_ZSTANDARD = ".zst"


def is_log_name(name: str) -> bool:
    """True if a file of this name in a folder is taken for a log."""
    return name.endswith((SUFFIX, SUFFIX + COMPRESSED, SUFFIX + _ZSTANDARD))


#: zlib: the window of a gzip stream, with its header.
GZIP_WINDOW_BITS = 31
_ZST_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_GZIP_MAGIC = b"\x1f\x8b\x08"  # RFC 1952, 2.3.1; the last byte: deflate
MAGIC_LENGTH = 4
#: Read in one piece: Zstandard may pack a block of 128 KB into 4 bytes, so this gives at most 16 MB.
_READ_BYTES = 512
#: Most memory for the window of a Zstandard frame: 8 MB, as a power of 2.
_WINDOW_LOG = 23


class _Stream(Protocol):
    """A unit of decompression: a member of a gzip file, a frame of Zstandard."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


#: Makes ``_Stream`` objects; and the exception that they raise at damage.
Streams: TypeAlias = tuple[Callable[[], _Stream], type[Exception]]


def decompressed(file: BinaryIO, beginning: bytes, name: str) -> BinaryIO:
    """A file as decompressed bytes; ``beginning`` shows whether it is compressed. Raises UnreadableLog.

    Python reads Zstandard from 3.14 on.
    """
    streams: Streams = (lambda: zlib.decompressobj(GZIP_WINDOW_BITS), zlib.error)
    if beginning.startswith(_ZST_MAGIC):
        try:
            from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
        except ImportError:
            raise UnreadableLog(
                f"the log {plain(name)} is compressed with Zstandard, which Python reads from 3.14 on",
                f"Decompress it first: zstd -d {plain(name)}",
            ) from None
        options = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
        streams = (lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError)
    elif not beginning.startswith(_GZIP_MAGIC):
        return file
    return io.BufferedReader(Decompressed(file, streams))


class Decompressed(io.RawIOBase):
    """A compressed file that may still grow, read up to the first damage."""

    def __init__(self, file: BinaryIO, streams: Streams) -> None:
        self._file = file
        self._new_stream, self._error = streams
        self._stream = self._new_stream()
        self._input = b""
        self._output = memoryview(b"")
        self.damaged = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill ``buffer`` as far as there is data for now; 0 at the end."""
        while not self._output:
            if not self._decompress():
                return 0
        room = memoryview(buffer)
        count = min(len(room), len(self._output))
        room[:count] = self._output[:count]
        self._output = self._output[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()

    def _decompress(self) -> bool:
        """Decompress the next bytes of the file; False if there are none."""
        data = self._input or self._file.read(_READ_BYTES)
        if self.damaged or not data:
            return False
        try:
            self._output = memoryview(self._stream.decompress(data))
        except self._error:
            self.damaged = True
            return False
        self._input = b""
        if self._stream.eof:
            self._input = self._stream.unused_data
            self._stream = self._new_stream()
        return True
