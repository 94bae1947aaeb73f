"""Compressed logs: Zstandard, one frame that every window is flushed into."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zstandard

#: An empty last block: it ends a frame that is cut off after any other block (RFC 8878, 3.1.1.2).
_LAST_BLOCK = b"\x01\x00\x00"
#: Of 22: 6 makes a log a tenth smaller than 3, for 20 us more a window; 10 makes it no smaller.
_LEVEL = 6
#: 512 KB: what the compressor may refer back to, several minutes of a log.
_WINDOW_LOG = 19


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
