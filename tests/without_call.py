"""``python without_call.py ptrace COMMAND...``: that system call is an error there, as in a container that filters it.

The filter refuses one system call, and needs no privilege (https://docs.kernel.org/userspace-api/seccomp_filter.html).
"""

import ctypes
import errno
import os
import platform
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBERS = {"ptrace": {"x86_64": 101, "aarch64": 117}, "perf_event_open": {"x86_64": 298, "aarch64": 241}}
#: The filter cannot be had here.
UNAVAILABLE = 77


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("first", ctypes.POINTER(_Instruction)))


def main() -> None:
    number = _NUMBERS[sys.argv[1]].get(platform.machine())
    if number is None:
        sys.exit(UNAVAILABLE)
    code = (_Instruction * 4)(
        (_LOAD, 0, 0, 0),  # the number of the system call
        (_JUMP_IF_EQUAL, 0, 1, number),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(code), code)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program)):
        sys.exit(UNAVAILABLE)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
