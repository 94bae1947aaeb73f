"""Has a process run one statement of Python, by gdb in batch mode: through ``Py_AddPendingCall``, at a safe point.

The process is stopped for some ten milliseconds. If one of its threads is at a place where it cannot hold the one lock
that the call takes (in a system call, in code that is neither the interpreter's nor the C library's, in a function of
Python's objects), the call is made there; otherwise the process goes on and is stopped again a little later. The call
only leaves a request: the interpreter takes it in the main thread, between two instructions of Python, and starts a
thread (``pending_call``). Nothing is allocated in the process until then but one page, which it cannot write.

There are no breakpoints: they would stay in its code, and end it, if gdb were killed meanwhile.

Before the call, gdb tries to write a register of this processor that nothing depends on. If it cannot, it is run again
with fewer of them (``registers``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise

from tuimon.errors import CannotInject
from tuimon.launch.injection import pending_call, registers
from tuimon.launch.injection.symbols import Function, find_functions
from tuimon.launch.injection.symbols import Mapping as MappedPart
from tuimon.launch.injection.target import ALLOW_PTRACE, RUN_INSTEAD, Target, check_threads, machine
from tuimon.proc import procfs
from tuimon.text import plain

#: Expressions for gdb, by processor: true if the instruction before the program counter is a system call.
_IN_SYSTEM_CALL = {
    "x86_64": "*(unsigned short *)($place - 2) == 0x050f",
    "aarch64": "*(unsigned int *)($place - 4) == 0xd4000001",
}
#: Writes a register that nothing depends on, the opcode of the last x87 instruction, and writes it back.
_TRY_TO_WRITE = {"x86_64": "set $fop = $fop ^ 1\n    set $fop = $fop ^ 1", "aarch64": ""}
_CANNOT_WRITE = "Couldn't write extended state status"
#: Older ones do not know how many registers a processor with AMX has.
_KNOWS_AMX = 14
#: Lines of gdb's that are no errors begin with these.
_NO_ERROR = ("[", "0x", "warning: ")
#: How often the process is stopped at most to find a safe point, and how long it runs between.
TRIES = 100
BETWEEN_S = 0.01
#: gdb itself needs 0.15 s; a process in uninterruptible sleep cannot be stopped.
TIMEOUT_S = 15.0
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: For so long after gdb was killed the process may still come to a stop.
LEFT_STOPPED_S = 0.5
#: Begins the script's last line.
_DONE = "tuimon: done"
#: In that line: there is no page, or it could not be written, of which gdb only warns.
_NO_PAGE = 2

SCRIPT = """\
set pagination off
set confirm off
set width 0
set language c
set unwindonsignal on
set auto-solib-add off
set sysroot /nonexistent
set libthread-db-search-path /nonexistent
{known_registers}
exec-file /proc/{pid}/exe
define tuimon_place
  if $chosen == 0
    set $place = (unsigned long)$pc
    if {is_safe}
      set $chosen = $_thread
    end
  end
end
set $done = 0
set $tries = 0
set $result = 0
while $done == 0 && $tries < {tries}
  if $tries > 0
    shell sleep {between}
  end
  set $tries = $tries + 1
  attach {pid}
  handle all nostop noprint pass
  handle SIGINT nostop noprint pass
  set $chosen = 0
  thread apply all tuimon_place
  if $chosen != 0
    thread $chosen
    {try_to_write}
    set $page = ((unsigned long (*)(long, long, int, int, int, long)){mmap})(0, {size}, 5, 0x22, -1, 0)
    set $done = {no_page}
    if $page < (unsigned long)-4096
      restore {content} binary $page
      if *(unsigned long *)$page == {first} && *(unsigned long *)($page + {request}) == {start}
        set $result = ((int (*)(unsigned long, unsigned long)){add_call})($page + {entry}, $page + {request})
        set $done = 1
      end
    end
  end
  detach
end
printf "{finished} %d result %d tries %d\\n", $done, $result, $tries
"""


def find_gdb() -> str:
    """gdb. Raises CannotInject when there is none."""
    path = shutil.which("gdb")
    if path is None or not os.path.isabs(path):
        raise CannotInject(
            "gdb is not installed; before Python 3.14 there is no other way in",
            f"apt install gdb, dnf install gdb or conda install -c conda-forge gdb. {RUN_INSTEAD}",
        )
    return path


def schedule(target: Target, statement: str, waited_for: str) -> int:
    """Have a thread run ``statement`` soon; how often the process was stopped. Raises CannotInject.

    ``waited_for``: a file; the main thread waits while it is there.
    """
    gdb = find_gdb()
    check_threads(target.pid)
    folder = tempfile.mkdtemp(prefix="tuimon-gdb-")
    try:
        page, script, known = (os.path.join(folder, name) for name in ("page", "script", "known"))
        functions = functions_for(target)
        addresses = {name: function.start for name, function in functions.items()}
        _write(page, pending_call.page(machine(), addresses, waited_for, statement))
        _write(known, registers.description().encode())
        command = [gdb, "-nx", "-nh", "-q", "-batch", "--readnever", "-x", script]
        _write(script, script_for(target, functions, page).encode())
        output = run_gdb(command, target.pid)
        if _CANNOT_WRITE in output:
            _write(script, script_for(target, functions, page, known).encode())
            output = run_gdb(command, target.pid)
        return _outcome(target, output, gdb)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def functions_for(target: Target) -> dict[str, Function]:
    """The functions of the process that are called, and the harmless ones. Raises CannotInject if one is missing."""
    needed = ("Py_AddPendingCall", *pending_call.OF_PYTHON)
    python = _functions(target.python_file, target.python, (*needed, *pending_call.HARMLESS.split()))
    if not all(name in python for name in needed):
        raise CannotInject(
            f"the Python of process {target.pid} exports none of its functions (linked statically, without symbols)",
            RUN_INSTEAD,
        )
    needed_too = ("mmap", *pending_call.OF_C_LIBRARY)
    c_library: dict[str, Function] = {}
    for path in {part.path for part in target.c_library}:
        c_library |= _functions(target.file(path), [part for part in target.c_library if part.path == path], needed_too)
    if not all(name in c_library for name in needed_too) or machine() not in pending_call.CODE:
        raise CannotInject(
            f"process {target.pid} has a C library or a processor that tuimon was never tried with", RUN_INSTEAD
        )
    return python | c_library


def script_for(target: Target, functions: Mapping[str, Function], page: str, known_registers: str | None = None) -> str:
    """The commands for gdb. ``page``: the file with what the process is given.

    ``known_registers``: the description of those that gdb is to read and write. The called function may change others;
    in a system call that the C library makes none of those is in use, as its caller could not rely on them.
    """
    in_harmless = _within(functions[name] for name in pending_call.HARMLESS.split() if name in functions)
    in_python = _within(Function(part.start, part.end) for part in target.python if part.is_code)
    in_c_library = _within(Function(part.start, part.end) for part in target.c_library if part.is_code)
    in_system_call = _IN_SYSTEM_CALL[machine()]
    code = pending_call.CODE[machine()]
    is_safe = f"{in_harmless} || !({in_python}) && (!({in_c_library}) || {in_system_call})"
    return SCRIPT.format(
        pid=target.pid,
        known_registers="" if known_registers is None else f"set tdesc filename {known_registers}",
        is_safe=is_safe if known_registers is None else f"{in_c_library} && {in_system_call}",
        try_to_write=_TRY_TO_WRITE[machine()],
        tries=TRIES,
        between=BETWEEN_S,
        size=pending_call.PAGE,
        no_page=_NO_PAGE,
        finished=_DONE,
        content=page,
        mmap=hex(functions["mmap"].start),
        add_call=hex(functions["Py_AddPendingCall"].start),
        first=int.from_bytes(code.content[:8], "little"),
        start=functions[pending_call.OF_PYTHON[0]].start,
        entry=code.entry,
        request=pending_call.REQUEST,
    )


def _functions(file: str, mapped: Iterable[MappedPart], names: tuple[str, ...]) -> dict[str, Function]:
    try:
        return find_functions(file, mapped, names)
    except (OSError, ValueError):
        return {}


def _within(parts: Iterable[Function]) -> str:
    return "(" + (" || ".join(f"($place >= {start:#x} && $place < {end:#x})" for start, end in parts) or "0") + ")"


def run_gdb(command: list[str], pid: int) -> str:
    """The output of gdb; the process runs on afterwards, however gdb ended."""
    output = ""
    with started(command) as child:  # closes the pipe of a gdb that takes too long, too
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                output = child.communicate(timeout=TIMEOUT_S)[0].decode("utf-8", "replace")
            return output
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            if _DONE not in output:
                _end_group(child.pid)
                _have_go_on(pid)


def started(command: list[str]) -> subprocess.Popen[bytes]:
    """gdb, deaf to signals that end programs: at SIGTERM it would first send SIGINT to the process."""
    environment = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, _DEAF_TO
    )  # a child inherits the mask of the thread that starts it
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_group(leader: int) -> None:
    """End what a killed gdb has left: to see what ptrace can do it forks, and that child waits stopped for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _have_go_on(pid: int) -> None:
    """Let the process run that a killed gdb has left stopped: the signal it was stopped by arrives a little later.

    In a thread that is in uninterruptible sleep it waits, and would stop all of them once that is over. SIGCONT takes
    it back.
    """
    until_s = time.monotonic() + LEFT_STOPPED_S
    while time.monotonic() < until_s:
        stat = procfs.parse_stat(procfs.read_bytes(f"/proc/{pid}/stat") or b"")
        if stat is None:
            return
        if stat.state == "T" or _is_to_stop(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
            return
        time.sleep(BETWEEN_S)


def _is_to_stop(pid: int) -> bool:
    """True if SIGSTOP is pending for one of its threads."""
    for tid in procfs.thread_ids(pid):
        status = procfs.read_bytes(f"/proc/{pid}/task/{tid}/status") or b""
        _, found, pending = status.partition(b"\nSigPnd:\t")
        if found and int(pending.split(None, 1)[0], 16) >> signal.SIGSTOP - 1 & 1:
            return True
    return False


def _outcome(target: Target, output: str, gdb: str) -> int:
    found = [line.split() for line in output.splitlines() if line.startswith(_DONE)]
    if found:
        done, result, tries = int(found[-1][2]), found[-1][4], int(found[-1][6])
        if done == _NO_PAGE:
            raise CannotInject(
                f"process {target.pid} may not be given code (SELinux, or the kernel's proc_mem.force_override)",
                RUN_INSTEAD,
            )
        if done and result == "0":
            return tries
        if done:
            raise CannotInject(f"the interpreter of process {target.pid} takes no request now", "Try again.")
        raise CannotInject(
            f"process {target.pid} was at no safe point in {tries} tries; nothing was changed",
            f"Try again. {RUN_INSTEAD}",
        )
    if "ermission denied" in output or "not permitted" in output or "Could not attach" in output:
        raise CannotInject(f"ptrace is denied for process {target.pid}", ALLOW_PTRACE)
    if _CANNOT_WRITE in output:
        version = gdb_version(gdb)
        newer = f"gdb {_KNOWS_AMX} or newer can. " if int(version.partition(".")[0] or 0) < _KNOWS_AMX else ""
        raise CannotInject(f"gdb {version or '?'} cannot write this processor's registers", f"{newer}{RUN_INSTEAD}")
    error = plain(error_line(output))[:200]
    raise CannotInject(f"gdb could not reach process {target.pid}: {error}", f"Try again. {RUN_INSTEAD}")


def error_line(output: str) -> str:
    """The error that ended the script; if gdb names none, the last line of its output that may be one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for before, line in pairwise(lines):
        if before.endswith("Error in sourced command file:"):
            return line
    return ([line for line in lines if not line.startswith(_NO_ERROR)] or lines or ["no output"])[-1]


def gdb_version(gdb: str) -> str:
    """The version, such as 13.1; empty if gdb does not say."""
    try:
        done = subprocess.run([gdb, "--version"], capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    first = done.stdout.partition(b"\n")[0].decode("utf-8", "replace")  # GNU gdb (Debian 13.1-3) 13.1
    found: list[str] = re.findall(r"\d+\.\d+", first)
    return found[-1] if found else ""
