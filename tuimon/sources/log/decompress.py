"""A compressed log as the bytes it holds: Zstandard, as tuimon writes it, or gzip, as people pack a log to send it."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ZST_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_GZIP_MAGIC = b"\x1f\x8b\x08"  # RFC 1952, 2.3.1; the last byte: deflate
MAGIC_LENGTH = 4
#: Read at once: Zstandard may pack a block of 128 KB into 4 bytes, so this gives at most 16 MB.
_READ_BYTES = 512
#: Most memory for what a frame of Zstandard may refer back to.
_WINDOW_BYTES = 8 << 20
#: zlib: the window of a gzip stream, with its header.
_GZIP_WINDOW_BITS = 31


class _Stream(Protocol):
    """A unit of decompression: a frame of Zstandard, a member of a gzip file."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def looks_compressed(beginning: bytes) -> bool:
    """True if a file that begins so is compressed in a way that can be read."""
    return beginning.startswith((ZST_MAGIC, _GZIP_MAGIC))


class Decompressed(io.RawIOBase):
    """A compressed file that may still grow; what follows damage is not read."""

    def __init__(self, file: BinaryIO, beginning: bytes) -> None:
        self._file = file
        self._new_stream, self._error = _zst() if beginning.startswith(ZST_MAGIC) else _gzip()
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


def _zst() -> tuple[Callable[[], _Stream], type[Exception]]:
    import zstandard  # noqa: PLC0415  (not needed by other logs)

    return zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).decompressobj, zstandard.ZstdError


def _gzip() -> tuple[Callable[[], _Stream], type[Exception]]:
    return lambda: zlib.decompressobj(_GZIP_WINDOW_BITS), zlib.error
