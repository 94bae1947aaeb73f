"""The bytes of a ring file, for the monitor.

Read, not mapped: of a file that somebody cuts short a read returns less, and a map kills whoever touches it (SIGBUS).
"""

import fcntl
import os
import stat
import struct

from .layout import SLOT_BYTES, SLOTS_OFFSET, U64


class RingError(Exception):
    """The file is no ring of this version, or belongs to another user."""


class RingBytes:
    """An open ring file of this user; it outlives its name."""

    def __init__(self, path: str, writable: bool = False) -> None:
        """Raises RingError when it cannot be a ring, OSError when it is not there."""
        self.path = path
        # a pipe must not hold us up, and a symbolic link is not ours
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        self._handle = os.open(path, flags)
        try:
            info = os.fstat(self._handle)
            if info.st_uid != os.geteuid():
                raise RingError("%s belongs to user %d" % (path, info.st_uid))
            if not stat.S_ISREG(info.st_mode):
                raise RingError("%s is no file" % path)
            if info.st_size < SLOTS_OFFSET + SLOT_BYTES:
                raise RingError("%s is too short for a ring" % path)
            if writable and info.st_mode & 0o077:
                raise RingError("%s is open to other users (mode %o)" % (path, stat.S_IMODE(info.st_mode)))
        except BaseException:
            os.close(self._handle)
            raise
        self.size = info.st_size
        self._identity = (info.st_dev, info.st_ino)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes; fewer where the file was cut short."""
        return os.pread(self._handle, length, offset)

    def write(self, offset: int, data: bytes) -> None:
        """Replace bytes, of a file that is as long as ever. Raises OSError."""
        if self.is_cut():
            raise OSError("the ring was cut short")
        os.pwrite(self._handle, data, offset)

    def try_lock(self, offset: int, length: int) -> bool:
        """Lock bytes against other monitors; False while one has them. Closing any handle of the file unlocks."""
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, length, offset)
        except OSError:
            return False
        return True

    def unlock(self, offset: int, length: int) -> None:
        """Let other monitors have the bytes."""
        fcntl.lockf(self._handle, fcntl.LOCK_UN, length, offset)

    def number(self, offset: int, form: struct.Struct = U64) -> int:
        """The integer at ``offset``; 0 where the file was cut short."""
        raw = os.pread(self._handle, form.size, offset)
        return int(form.unpack(raw)[0]) if len(raw) == form.size else 0

    def is_cut(self) -> bool:
        """True if the file has become shorter: its process will be killed at one of its next markers."""
        return os.fstat(self._handle).st_size < self.size

    def has_name(self, path: str) -> bool:
        """True if ``path`` names this file. Raises OSError when it names none."""
        info = os.stat(path)
        return (info.st_dev, info.st_ino) == self._identity
