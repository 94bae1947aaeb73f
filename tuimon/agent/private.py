"""Checks that a folder is private: only this user can have put files there, and nobody else can replace them."""

import os
import stat
from typing import List, Optional

#: Owner of files whose owner has no id in this user namespace: the host's root, seen from inside a container.
_UNMAPPED_UID = 65534


def refusal(directory: str) -> Optional[str]:
    """The reason why a folder may not hold our files, as a phrase for the user; None if it may.

    It must be a directory of this user that nobody else can write to, below folders in which nobody but this user and
    root can replace it. Raises OSError when it is missing.
    """
    info = os.lstat(directory)  # not through a symbolic link, which any user may have put there
    if not stat.S_ISDIR(info.st_mode):
        return "%s is not a folder" % directory
    if info.st_uid != os.geteuid():
        return "%s belongs to user %d" % (directory, info.st_uid)
    if info.st_mode & 0o022:
        return "other users may write to %s (mode %o)" % (directory, stat.S_IMODE(info.st_mode))
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        real = os.readlink("/proc/self/fd/%d" % handle)  # ``os.path.realpath`` swallows any OSError
    finally:
        os.close(handle)
    for parent in _parents(os.path.abspath(directory)) + _parents(real):
        reason = _replaceable_in(parent)
        if reason:
            return reason
    return None


def make_private(directory: str) -> Optional[str]:
    """Make the folder if it is missing, never its parents; returns why it may not be used, or None. Raises OSError."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    return refusal(directory)


def _parents(path: str) -> List[str]:
    parents = []
    while os.path.dirname(path) != path:
        path = os.path.dirname(path)
        parents.append(path)
    return parents


def _replaceable_in(parent: str) -> Optional[str]:
    """Why another user could replace the contents of this folder; in a sticky one only owners rename and remove."""
    info = os.lstat(parent)
    if info.st_uid not in (0, os.geteuid(), _UNMAPPED_UID):
        return "%s belongs to user %d" % (parent, info.st_uid)
    if not stat.S_ISDIR(info.st_mode) or info.st_mode & stat.S_ISVTX:
        return None
    # a user's own group often has no other members, and new folders are writable by it
    by_group = info.st_mode & stat.S_IWGRP and info.st_gid not in (0, os.getegid())
    if by_group or info.st_mode & stat.S_IWOTH:
        return "other users may write to %s (mode %o)" % (parent, stat.S_IMODE(info.st_mode))
    return None
