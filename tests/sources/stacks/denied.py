"""``python denied.py COMMAND...``: the command may not read the memory of processes outside its Landlock domain.

A Landlock domain is what a hardened host or a container gives a program: the kernel then refuses ptrace, /proc/PID/mem
and what else needs the same permission, for every process that is not in the domain. No privilege is needed for it
(Linux 5.13, https://docs.kernel.org/userspace-api/landlock.html#ptrace-restrictions).
"""

import ctypes
import os
import sys

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_MAKE_BLOCK_DEVICES = 1 << 11  # the one thing that is forbidden beside
_PR_SET_NO_NEW_PRIVS = 38
#: The domain cannot be had here.
UNAVAILABLE = 77


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    handled = (ctypes.c_uint64 * 1)(_MAKE_BLOCK_DEVICES)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(handled), 8, 0)
    if ruleset < 0 or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT_SELF, ruleset, 0):
        sys.exit(UNAVAILABLE)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
