"""A disk that fails under a log while it is read."""

import errno
import io
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from tuimon.sources.log import reader

#: Reading its beginning fails with EIO, whoever asks: nothing is mapped there.
UNREADABLE = "/proc/self/mem"


class _Failing(io.RawIOBase):
    def __init__(self, file: BinaryIO, after_bytes: int, number: int) -> None:
        self.file, self.left, self.number = file, after_bytes, number

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # as io calls it
        if not self.left:
            raise OSError(self.number, os.strerror(self.number))
        data = self.file.read(min(len(buffer), self.left))
        self.left -= len(data)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self.file.close()
        super().close()


def fail_in(monkeypatch: pytest.MonkeyPatch, path: Path, after_bytes: int, number: int = errno.EIO) -> None:
    """Have reads of the file at ``path`` fail after so many bytes."""
    whole = reader.decompressed

    def opened(raw: BinaryIO, beginning: bytes, name: str) -> BinaryIO:
        file = whole(raw, beginning, name)
        is_it = os.path.samestat(os.fstat(raw.fileno()), path.stat())
        return io.BufferedReader(_Failing(file, after_bytes, number)) if is_it else file

    monkeypatch.setattr(reader, "decompressed", opened)
