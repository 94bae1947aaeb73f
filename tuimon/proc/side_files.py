"""Reads the files that an agent leaves beside its ring."""

from __future__ import annotations

import os
import stat

from tuimon.agent.ring.side_files import FILE_LIMIT


def read_side_file(path: str) -> bytes:
    """The bytes of a file of this user; none when it is not there, too large, or another kind of file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        info = os.fstat(handle)
        if info.st_uid != os.geteuid() or not stat.S_ISREG(info.st_mode) or info.st_size > FILE_LIMIT:
            return b""
        return os.read(handle, FILE_LIMIT)
    except OSError:
        return b""
    finally:
        os.close(handle)
