"""Makes a process run one statement of Python, by gdb in batch mode: through ``Py_AddPendingCall``, at a safe point.

The process is stopped for some ten milliseconds. If one of its threads is where it cannot hold the one lock
that the call takes (in a system call, in code that is neither the interpreter's nor the C library's, in a function of
Python's objects), the call is made there; otherwise the process goes on and is stopped again a little later. The call
only leaves a request: the interpreter takes it in the main thread, between two instructions of Python, and starts a
thread. Until then one page is allocated in the process, which the process cannot write, and nothing else.

There are no breakpoints: if gdb were killed meanwhile, they would stay in the process's code and end it. gdb is never
killed within its call, as the process would return from the call into nothing.

Before the call, gdb tries to write a register of this processor that nothing depends on. If it cannot, gdb is run again
with fewer registers (``known_registers``).
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import BinaryIO, NamedTuple

from tuimon.errors import CannotInject
from tuimon.launch.target import ALLOW_PTRACE, RUN_INSTEAD, Function, Target, check_threads, find_functions
from tuimon.proc import procfs
from tuimon.text import plain


class Processor(NamedTuple):
    """The pending call that starts our thread: machine code, as no function of Python's C API can do it.

    The main thread runs none of our Python: the interpreter calls handlers of signals there, between any two
    instructions, and what they raise in a statement of ``PyRun_SimpleString`` is printed and lost. Our statement runs
    in a thread of its own, in which no handler runs; the main thread waits in C while a file exists.
    ``pending_call.c`` is the source.
    """

    content: bytes
    entry: int  # the address at which it begins
    in_system_call: str  # an expression for gdb: the instruction before the program counter is a system call
    try_to_write: str  # writes a register that nothing depends on, and writes it back


PROCESSORS = {
    "x86_64": Processor(
        bytes.fromhex(
            "55534889fb50ff5718488dbb4004000089c5ff5328488b432089ef5a5b5dffe041554889fe415455534889fb488d3dcdffffff51"
            "ff1348ffc0742fff530841bcd00700004c8d6b404889c531f64c89efff533085c0750dbfe8030000ff533841ffcc75e74889efff"
            "53105a31c05b5d415c415dc3"
        ),
        0x20,
        "*(unsigned short *)($place - 2) == 0x050f",
        "set $fop = $fop ^ 1\n    set $fop = $fop ^ 1",  # the opcode of the last x87 instruction
    ),
    "aarch64": Processor(
        bytes.fromhex(
            "f353bea9f30300aa000c40f9fe0b00f900003fd6f403002a611640f96002119120003fd6fe0b40f9e003142a611240f9f353c2a8"
            "f00301aa00021fd6f353bda9e10300aaf30300aa020040f9f55b01a980fdff10fe1300f940003fd61f0400b160020054600640f9"
            "7602019115fa805200003fd6f40300aa621a40f9e00316aa0100805240003fd6c0000035611e40f9007d805220003fd6b5060071"
            "e1feff54610a40f9e00314aa20003fd6f55b41a900008052fe1340f9f353c3a8c0035fd6"
        ),
        0x3C,
        "*(unsigned int *)($place - 4) == 0xd4000001",
        "",
    ),
}
_MACHINE = platform.machine()
#: The functions that it calls, in the order of ``struct request``.
PYTHON_FUNCTIONS = (
    "PyThread_start_new_thread",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyRun_SimpleString",
)
C_FUNCTIONS = ("access", "usleep")
#: Functions of the interpreter in which a thread cannot hold the lock of the pending calls: they take no lock and call
#: nothing that does while it is theirs. A loop of pure Python spends 30 % in them.
HARMLESS = """
    PyLong_FromLong PyLong_FromSsize_t PyLong_AsSsize_t PyLong_AsLong PyFloat_FromDouble PyType_GenericAlloc
    PyType_IsSubtype _PyType_Lookup PyList_Append PyList_New PyTuple_New PyTuple_Pack _PyTuple_FromArray
    PyDict_GetItemWithError PyDict_SetItem PyDict_Next PyDict_Contains PyObject_GetAttr _PyObject_GetMethod
    PyObject_GenericGetAttr _PyObject_GenericGetAttrWithDict _PyObject_GetDictPtr PyObject_GetItem PyObject_SetItem
    PyObject_GetIter PyObject_IsTrue PyObject_RichCompare PyObject_Hash PyObject_GC_Del PyObject_GC_UnTrack
    _PyObject_GC_New PyObject_Malloc PyObject_Free _PyObject_Malloc _PyObject_Free PyMem_Malloc PyMem_Free PyNumber_Add
    PyNumber_Multiply PyNumber_Subtract PyNumber_Index PyNumber_InPlaceAdd PyObject_ClearWeakRefs PySequence_GetItem
    _PyUnicode_FromId PyUnicode_FromFormat PyUnicode_Compare
"""
#: Offset of the request in the page, after the code.
REQUEST = 256
_PATH_BYTES = 1024
PAGE = 4096


def pending_call_page(functions: Mapping[str, int], path: str, statement: str) -> bytes:
    """The content of the page. ``functions``: their addresses; ``path``: the main thread waits while it exists.

    Raises CannotInject.
    """
    table = struct.pack("<8Q", *(functions[name] for name in (*PYTHON_FUNCTIONS, *C_FUNCTIONS)))
    waited_for = path.encode("utf-8", "surrogateescape")
    content = PROCESSORS[_MACHINE].content.ljust(REQUEST, b"\0") + table + waited_for.ljust(_PATH_BYTES, b"\0")
    content += statement.encode() + b"\0"
    if len(waited_for) >= _PATH_BYTES or len(content) > PAGE:
        raise CannotInject(
            f"the path of the temporary folder is too long: {path[:80]}...", "Set TMPDIR to a short one."
        )
    return content


_CANNOT_WRITE = "Couldn't write extended state status"
#: Older versions of gdb do not know how many registers a processor with AMX has.
_KNOWS_AMX = 14
#: Lines of gdb's output that are not errors begin with these.
_NO_ERROR = ("[", "0x", "warning: ", "tuimon: ")
#: How often the process is stopped at most to find a safe point, and how long it runs between.
TRIES = 100
BETWEEN_S = 0.01
#: Longest time for gdb, without the time in which it waited for a core. It needs 0.15 s; a process in uninterruptible
#: sleep cannot be stopped.
GDB_TIMEOUT_S = 15.0
#: How long its call, which takes a millisecond, may take from then on.
CALL_S = 60.0
_POLL_S = 0.005
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Lines that the script prints before each action; its last line begins with the last of these.
_STOPS, _CALLS, _GOES_ON, _DONE = "tuimon: stops", "tuimon: calls", "tuimon: goes on", "tuimon: done"
#: The number in that line if there is no page, or it could not be written, of which gdb only warns.
_NO_PAGE = 2
_TRY_AGAIN = f"Try again. {RUN_INSTEAD}"

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
  echo {stops}\\n
  attach {pid}
  handle all nostop noprint pass
  handle SIGINT nostop noprint pass
  set $chosen = 0
  thread apply all tuimon_place
  if $chosen != 0
    thread $chosen
    {try_to_write}
    echo {calls}\\n
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
  echo {goes_on}\\n
end
printf "{finished} %d result %d tries %d\\n", $done, $result, $tries
"""


def find_gdb() -> str:
    """The path of gdb. Raises CannotInject if it is not installed."""
    path = shutil.which("gdb")
    if path is None or not os.path.isabs(path):
        raise CannotInject(
            "gdb is not installed; before Python 3.14 there is no other way in",
            f"apt install gdb, dnf install gdb or conda install -c conda-forge gdb. {RUN_INSTEAD}",
        )
    return path


def schedule(target: Target, statement: str, waited_for: str) -> None:
    """Have a thread run ``statement`` soon. Raises CannotInject.

    ``waited_for``: a file; the main thread waits while it exists.
    """
    gdb = find_gdb()
    check_threads(target.pid)
    folder = tempfile.mkdtemp(prefix="tuimon-gdb-")
    try:
        page, script, known = (os.path.join(folder, name) for name in ("page", "script", "known"))
        functions = functions_for(target)
        addresses = {name: function.start for name, function in functions.items()}
        _write(page, pending_call_page(addresses, waited_for, statement))
        _write(known, known_registers().encode())
        command = [gdb, "-nx", "-nh", "-q", "-batch", "--readnever", "-x", script]
        _write(script, script_for(target, functions, page).encode())
        output = run_gdb(command, target.pid)
        has_few_points = _CANNOT_WRITE in output
        if has_few_points:
            _write(script, script_for(target, functions, page, known).encode())
            output = run_gdb(command, target.pid)
        _check(target, output, gdb, has_few_points=has_few_points)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def functions_for(target: Target) -> dict[str, Function]:
    """The functions that gdb calls, and the harmless ones of the interpreter. Raises CannotInject if one is missing."""
    needed = ("Py_AddPendingCall", *PYTHON_FUNCTIONS)
    python = find_functions(target.python_file, target.python, (*needed, *HARMLESS.split()))
    if not all(name in python for name in needed):
        raise CannotInject(
            f"the Python of process {target.pid} exports none of its functions (linked statically, without symbols)",
            RUN_INSTEAD,
        )
    needed_too = ("mmap", *C_FUNCTIONS)
    c_library: dict[str, Function] = {}
    for path in {part.path for part in target.c_library}:
        c_library |= find_functions(
            target.file(path), [part for part in target.c_library if part.path == path], needed_too
        )
    if not all(name in c_library for name in needed_too) or _MACHINE not in PROCESSORS:
        raise CannotInject(
            f"process {target.pid} has a C library or a processor that tuimon was never tried with", RUN_INSTEAD
        )
    return python | c_library


def script_for(target: Target, functions: Mapping[str, Function], page: str, registers: str | None = None) -> str:
    """The commands for gdb. ``page``: the file with the input of the process.

    ``registers``: the file that describes the registers that gdb is to read and write. The called function may change
    others; in a system call of the C library none of these others is in use, as its caller could not rely on them.
    """
    in_harmless = _within(functions[name] for name in HARMLESS.split() if name in functions)
    in_python = _within(Function(part.start, part.end) for part in target.python if part.is_code)
    in_c_library = _within(Function(part.start, part.end) for part in target.c_library if part.is_code)
    processor = PROCESSORS[_MACHINE]
    is_safe = f"{in_harmless} || !({in_python}) && (!({in_c_library}) || {processor.in_system_call})"
    return SCRIPT.format(
        pid=target.pid,
        known_registers="" if registers is None else f"set tdesc filename {registers}",
        is_safe=is_safe if registers is None else f"{in_c_library} && {processor.in_system_call}",
        try_to_write=processor.try_to_write,
        tries=TRIES,
        between=BETWEEN_S,
        size=PAGE,
        no_page=_NO_PAGE,
        stops=_STOPS,
        calls=_CALLS,
        goes_on=_GOES_ON,
        finished=_DONE,
        content=page,
        mmap=hex(functions["mmap"].start),
        add_call=hex(functions["Py_AddPendingCall"].start),
        first=int.from_bytes(processor.content[:8], "little"),
        start=functions[PYTHON_FUNCTIONS[0]].start,
        entry=processor.entry,
        request=REQUEST,
    )


def _within(parts: Iterable[Function]) -> str:
    return "(" + (" || ".join(f"($place >= {start:#x} && $place < {end:#x})" for start, end in parts) or "0") + ")"


def run_gdb(command: list[str], pid: int) -> str:
    """The output of gdb; the process runs on afterwards, however gdb ended. Raises CannotInject if gdb was ended."""
    with tempfile.TemporaryFile() as printed:  # no pipe: without a reader gdb would end, in its call as well
        child = started(command, printed)
        until_s = time.monotonic() + GDB_TIMEOUT_S
        while child.poll() is None:
            if time.monotonic() - procfs.waited_s(child.pid) > until_s:
                _end(child, printed, pid)
            time.sleep(_POLL_S)
        output = _read(printed)
    if _DONE not in output:
        _have_go_on(child, pid)
        if child.returncode < 0:
            number = -child.returncode
            raise CannotInject(f"gdb was ended by signal {number} ({signal.strsignal(number)})", _TRY_AGAIN)
    return output


def _read(printed: BinaryIO) -> str:
    return os.pread(printed.fileno(), os.fstat(printed.fileno()).st_size, 0).decode("utf-8", "replace")


def _end(child: subprocess.Popen[bytes], printed: BinaryIO, pid: int) -> None:
    """End a gdb that takes too long; wait for it if it is in its call. Raises CannotInject, unless it ended by itself.

    It is stopped first, so that it does not begin its call meanwhile.
    """
    child.send_signal(signal.SIGSTOP)
    while (stat := procfs.read_process_stat(child.pid)) is not None and stat.state not in "TZ":
        time.sleep(_POLL_S)
    output = _read(printed)
    if output.rfind(_CALLS) > output.rfind(_GOES_ON):
        child.send_signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(CALL_S)
            return
        raise CannotInject(
            f"gdb (process {child.pid}) does not come back from its call in process {pid}",
            f"It goes on by itself: do not kill it, as the training would end with it. {RUN_INSTEAD}",
        )
    child.kill()
    child.wait()
    _have_go_on(child, pid)
    raise CannotInject(
        f"gdb was ended after {GDB_TIMEOUT_S:.0f} s and {output.count(_STOPS)} tries to stop process {pid}, which runs"
        " on; nothing was changed",
        f"A process that waits for a disk, a network file system or a driver cannot be stopped. {_TRY_AGAIN}",
    )


def _have_go_on(child: subprocess.Popen[bytes], pid: int) -> None:
    """Let the process run, which a killed gdb may have left stopped, and end gdb's own children.

    The signal that stops the process may still be pending, or taken by a thread that has had no core since. SIGCONT
    cancels it in all these cases (``prepare_signal`` in kernel/signal.c).
    """
    # a killed gdb leaves a child, forked to see what ptrace can do, that waits stopped for it
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGCONT)


def started(command: list[str], printed: BinaryIO) -> subprocess.Popen[bytes]:
    """Start gdb so that it ignores signals that end programs: at SIGTERM it would first send SIGINT to the process."""
    environment = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
    # a child inherits the mask of the thread that starts it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _check(target: Target, output: str, gdb: str, *, has_few_points: bool) -> None:
    """Raise CannotInject unless gdb has made its call, by the last line of its output, or the message instead of it."""
    if found := re.search(rf"^{_DONE} (\d+) result (-?\d+) tries (\d+)", output, re.MULTILINE):
        done, result, tries = map(int, found.groups())
        if done == _NO_PAGE:
            raise CannotInject(
                f"process {target.pid} may not be given code (SELinux, or the kernel's proc_mem.force_override)",
                RUN_INSTEAD,
            )
        if not done:
            more = f"gdb {_KNOWS_AMX} or newer finds more of them on this processor. " if has_few_points else ""
            raise CannotInject(
                f"process {target.pid} was at no safe point in {tries} tries; nothing was changed",
                f"{more}{_TRY_AGAIN}",
            )
        if result:
            raise CannotInject(f"the interpreter of process {target.pid} takes no request now", "Try again.")
        return
    if "ermission denied" in output or "not permitted" in output or "Could not attach" in output:
        raise CannotInject(f"ptrace is denied for process {target.pid}", ALLOW_PTRACE)
    if _CANNOT_WRITE in output:
        version = gdb_version(gdb)
        newer = f"gdb {_KNOWS_AMX} or newer can. " if int(version.partition(".")[0] or 0) < _KNOWS_AMX else ""
        raise CannotInject(f"gdb {version or '?'} cannot write this processor's registers", f"{newer}{RUN_INSTEAD}")
    error = plain(error_line(output))[:200]
    raise CannotInject(f"gdb could not reach process {target.pid}: {error}", _TRY_AGAIN)


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
        done = subprocess.run([gdb, "--version"], capture_output=True, timeout=GDB_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    first = done.stdout.partition(b"\n")[0].decode("utf-8", "replace")  # GNU gdb (Debian 13.1-3) 13.1
    found: list[str] = re.findall(r"\d+\.\d+", first)
    return found[-1] if found else ""


def known_registers() -> str:
    """The registers of x86-64 that gdb before 14 can write on every processor, for gdb's ``set tdesc filename``.

    None are of AVX, AVX-512 and AMX. gdb writes all of them in one call, from a buffer of 2,696 bytes. The kernel
    accepts nothing but the whole state of the processor, which has 11,008 bytes with AMX, and refuses
    (``xstateregs_set`` in arch/x86/kernel/fpu/regset.c): "Couldn't write extended state status: Bad address". gdb meets
    that when the called function has returned and the thread is to have its registers back. A system call that should
    go on then returns an error that the C library does not know, and the C library ends the process. gdb 14 asks the
    processor for the size: https://patchwork.sourceware.org/project/gdb/cover/20230714155151.21723-1-jhb@FreeBSD.org/

    A gdb that is given this description writes by PTRACE_SETFPREGS and touches no other register.
    """
    general = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip"
    control = "fctrl fstat ftag fiseg fioff foseg fooff fop"
    features = {  # names, bits, type
        "core": (
            (general, 64, "int"),
            ("eflags cs ss ds es fs gs", 32, "int"),
            ("st0 st1 st2 st3 st4 st5 st6 st7", 80, "i387_ext"),
            (control, 32, "int"),
        ),
        "sse": ((" ".join(f"xmm{number}" for number in range(16)), 128, "uint128"), ("mxcsr", 32, "int")),
        "linux": (("orig_rax", 64, "int"),),
        "segments": (("fs_base gs_base", 64, "int"),),
    }
    text = ""
    for feature, groups in features.items():
        named = [(name, bits, kind) for names, bits, kind in groups for name in names.split()]
        registers = "".join(f'<reg name="{name}" bitsize="{bits}" type="{kind}"/>' for name, bits, kind in named)
        text += f'<feature name="org.gnu.gdb.i386.{feature}">{registers}</feature>'
    return f"<target><architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi>{text}</target>\n"
