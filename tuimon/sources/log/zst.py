"""Compressed logs: Zstandard, one frame that every window is flushed into, read back as far as it goes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import zstandard
    from _typeshed import WriteableBuffer

MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
#: An empty last block: it ends a frame that is cut off after any other block (RFC 8878, 3.1.1.2).
_LAST_BLOCK = b"\x01\x00\x00"
#: Of 22: 6 makes a log a tenth smaller than 3, for 20 us more a window; 10 makes it no smaller.
_LEVEL = 6
#: 512 KB: what the compressor may refer back to, several minutes of a log.
_WINDOW_LOG = 19
#: Read at once: a block of 128 KB may be packed into 4 bytes, so this gives at most 16 MB.
_READ_BYTES = 512
#: Most memory for what a frame may refer back to.
_WINDOW_BYTES = 8 << 20


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

        parameters = zstandard.ZstdCompressionParameters.from_level(_LEVEL, window_log=_WINDOW_LOG)
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


class ZstFile(io.RawIOBase):
    """A compressed file that may still grow, as the bytes it holds; what follows damage is not read."""

    def __init__(self, file: BinaryIO) -> None:
        import zstandard  # noqa: PLC0415

        self._file = file
        self._error = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        self._frame = self._decompressor.decompressobj()
        self._input = b""
        self._output = memoryview(b"")
        self.damaged = False

    def readable(self) -> bool:
        """It is."""
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
            self._output = memoryview(self._frame.decompress(data))
        except self._error:
            self.damaged = True
            return False
        self._input = b""
        if self._frame.eof:
            self._input = self._frame.unused_data
            self._frame = self._decompressor.decompressobj()
        return True
