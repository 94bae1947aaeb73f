"""The names of logs, and compressed ones: written by Zstandard; read too if people packed them by gzip to send them."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    import zstandard
    from _typeshed import WriteableBuffer

SUFFIX = ".jsonl"
#: A log whose name ends so is compressed: 1 to 2 MB an hour of one rank in place of 5 to 13.
COMPRESSED = ".zst"


def is_compressed(path: str) -> bool:
    """True if a log of this name is to be compressed."""
    return path.endswith(COMPRESSED)


def is_log_name(name: str) -> bool:
    """True if a file of this name in a folder is taken for a log."""
    return name.endswith((SUFFIX, SUFFIX + COMPRESSED))


#: An empty last block: it ends a frame that is cut off after any other block (RFC 8878, 3.1.1.2).
_LAST_BLOCK = b"\x01\x00\x00"
#: Zstandard's level, up to 22: 6 makes a log a tenth smaller than 3, for 20 us more a window; 10 makes it no smaller.
_LEVEL = 6
#: 256 KB: what the compressor may refer back to, some minutes of a log; and its tables: 1.1 MB of memory instead of the
#: level's own 3.6 MB (with 512 KB), and the log is no larger.
_SIZES = {"window_log": 18, "hash_log": 15, "chain_log": 16}


class Plain:
    """Lines as they are."""

    def encode(self, lines: bytes) -> bytes:
        """The bytes to append."""
        return lines

    def keep(self) -> None:
        """The bytes of the last call are in the file."""

    def abandon(self) -> None:
        """They are not, or have been taken back."""

    def end(self) -> bytes:
        """The bytes that end the file."""
        return b""


class Compressed(Plain):
    """Lines in one frame; after a failure in another, as a frame cannot go back."""

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415  (not needed by other logs)

        parameters = zstandard.ZstdCompressionParameters.from_level(_LEVEL, **_SIZES)
        self._compressor = zstandard.ZstdCompressor(compression_params=parameters)
        self._flush_block = zstandard.COMPRESSOBJ_FLUSH_BLOCK
        self._frame: zstandard.ZstdCompressionObj | None = None
        self._open = False  # whether the file ends in a frame that has not ended

    def encode(self, lines: bytes) -> bytes:
        """The bytes to append: a reader that has them has all lines so far."""
        cut = b""
        if self._frame is None:
            cut = _LAST_BLOCK if self._open else b""
            self._frame = self._compressor.compressobj()
        return cut + self._frame.compress(lines) + self._frame.flush(self._flush_block)

    def keep(self) -> None:
        """The bytes of the last call are in the file."""
        self._open = True

    def abandon(self) -> None:
        """They are not, or have been taken back."""
        self._frame = None

    def end(self) -> bytes:
        """The bytes that end the file."""
        if not self._open:
            return b""
        self._open = False
        return self._frame.flush() if self._frame is not None else _LAST_BLOCK


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
