"""The names of logs, and compressed logs: gzip, and Zstandard, which tuimon once wrote, if Python can read it."""

from __future__ import annotations

import io
import struct
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


def is_compressed(path: str) -> bool:
    """True if a log of this name is to be compressed."""
    return path.endswith(COMPRESSED)


def is_log_name(name: str) -> bool:
    """True if a file of this name in a folder is taken for a log."""
    return name.endswith((SUFFIX, SUFFIX + COMPRESSED, SUFFIX + _ZSTANDARD))


class Plain:
    """Lines as they are."""

    def encode(self, lines: bytes) -> bytes:
        """The bytes to append."""
        return lines

    def keep(self) -> None:
        """The bytes of the last call are in the file."""

    def abandon(self) -> None:
        """The bytes of the last call are not in the file, or have been taken back."""

    def end(self) -> bytes:
        """The bytes that end the file."""
        return b""


class Compressed(Plain):
    """Lines in one gzip member; after a failure in another, as a stream cannot go back."""

    #: RFC 1952, 2.3: deflate, no flags, no time, unknown system.
    _HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    #: An empty last block: it ends a stream that was flushed to a whole byte (RFC 1951, 3.2.6).
    _LAST_BLOCK = b"\x03\0"

    def __init__(self) -> None:
        self._stream: zlib._Compress | None = None
        self._open = False  # whether the file ends in a member that has not ended
        self._sums = self._new_sums = (0, 0)  # of that member: CRC and bytes; with those of the last call

    def encode(self, lines: bytes) -> bytes:
        """The bytes to append: a reader that has them has all lines so far."""
        begin, sums = b"", self._sums
        if self._stream is None:
            begin, sums = self.end() + self._HEADER, (0, 0)
            self._stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        self._new_sums = zlib.crc32(lines, sums[0]), sums[1] + len(lines)
        return begin + self._stream.compress(lines) + self._stream.flush(zlib.Z_SYNC_FLUSH)

    def keep(self) -> None:
        """The bytes of the last call are in the file."""
        self._open, self._sums = True, self._new_sums

    def abandon(self) -> None:
        """The bytes of the last call are not in the file, or have been taken back."""
        self._stream = None

    def end(self) -> bytes:
        """The bytes that end the file."""
        if not self._open:
            return b""
        return self._LAST_BLOCK + struct.pack("<II", self._sums[0], self._sums[1] & 0xFFFFFFFF)


_ZST_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_GZIP_MAGIC = b"\x1f\x8b\x08"  # RFC 1952, 2.3.1; the last byte: deflate
MAGIC_LENGTH = 4
#: Read at once: Zstandard may pack a block of 128 KB into 4 bytes, so this gives at most 16 MB.
_READ_BYTES = 512
#: Most memory for what a frame of Zstandard may refer back to: 8 MB, as a power of 2.
_WINDOW_LOG = 23
#: zlib: the window of a gzip stream, with its header.
_GZIP_WINDOW_BITS = 31


class _Stream(Protocol):
    """A unit of decompression: a member of a gzip file, a frame of Zstandard."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def looks_compressed(beginning: bytes) -> bool:
    """True if a file that begins so is compressed in a way that is known here."""
    return beginning.startswith((_ZST_MAGIC, _GZIP_MAGIC))


#: Makes ``_Stream`` objects; and the exception that they raise at damage.
Streams: TypeAlias = tuple[Callable[[], _Stream], type[Exception]]


def streams_of(beginning: bytes, name: str) -> Streams:
    """The decompressor for a file that begins so. Raises UnreadableLog for Zstandard before Python 3.14."""
    if not beginning.startswith(_ZST_MAGIC):
        return lambda: zlib.decompressobj(_GZIP_WINDOW_BITS), zlib.error
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415  (from 3.14 on)
    except ImportError:
        raise UnreadableLog(
            f"the log {plain(name)} is compressed with Zstandard, which Python reads from 3.14 on",
            f"Decompress it first: zstd -d {plain(name)}",
        ) from None
    options = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    return lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError


class Decompressed(io.RawIOBase):
    """A compressed file that may still grow; what follows damage is not read."""

    def __init__(self, file: BinaryIO, streams: Streams) -> None:
        self._file = file
        self._new_stream, self._error = streams
        self._stream = self._new_stream()
        self._input = b""
        self._output = memoryview(b"")
        self.damaged = False

    def readable(self) -> bool:
        """Always true."""
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
        """Close the file."""
        self._file.close()
        super().close()

    def _decompress(self) -> bool:
        """Decompress the next bytes of the file; False where there are none."""
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
