"""Hooks brought into a Python that runs: in every Python at hand, and what is refused."""

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.injection.trainings import ended, needs_gdb, refusal, state, stopped, training, writes_all_registers
from tests.pythons import at_hand
from tests.waiting import child_process, until
from tuimon.agent.ring import files, layout
from tuimon.agent.ring.reader import RingReader
from tuimon.errors import CannotInject
from tuimon.launch import gdb, target
from tuimon.launch import inject as launch
from tuimon.launch.inject import inject
from tuimon.monitor.hooks import Hooks
from tuimon.proc import procfs

pytestmark = pytest.mark.trust


def steps(pid):
    with contextlib.closing(RingReader(files.ring_path(pid))) as reader:
        found = {marker.kind for _ in range(RingReader.HOLE_READS) for marker in reader.read()}
    wanted = {layout.FETCH_BEGIN, layout.FETCH_END, layout.BACKWARD_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END}
    return wanted <= found


def way_in(version):
    if version < "3.14" and len(version) < 5 and version != "3.9" and shutil.which("gdb") is None:
        pytest.skip("no gdb")
    return at_hand.python(version)


@pytest.mark.parametrize("version", at_hand.VERSIONS)
def test_markers_from_the_next_step_on_and_nothing_left(version, tmp_path):
    with training(tmp_path, way_in(version)) as process:
        hooks = Hooks(process.pid)
        assert hooks.are_missing()
        assert f"into process {process.pid} " in hooks.bring_in()
        until(lambda: steps(process.pid))
        assert inject(process.pid)  # a second attach
        ring = files.ring_path(process.pid)
        assert hooks.withdraw() == "the hooks are withdrawn"
        assert not os.path.exists(ring)
        until(lambda: os.path.basename(ring) not in Path(f"/proc/{process.pid}/maps").read_text())
        assert hooks.are_missing()
        assert not inject(process.pid)  # and once more
        until(lambda: steps(process.pid))


@needs_gdb
def test_hooks_that_are_kept_are_found(tmp_path):
    with training(tmp_path, sys.executable) as process:
        first = Hooks(process.pid, keep=True)
        first.bring_in()
        assert "stay" in (first.withdraw() or "")
        second = Hooks(process.pid)
        assert not second.are_missing() and "already there" in second.bring_in()
        assert second.withdraw() is None
        until(lambda: steps(process.pid))


@needs_gdb
def test_a_main_thread_that_does_not_come_back(tmp_path):
    """Given up, the request does nothing if it is taken later."""
    with training(tmp_path, sys.executable, also="time.sleep(1000)") as process:
        until(lambda: "nanosleep" in Path(f"/proc/{process.pid}/wchan").read_text() or state(process) == "S")
        with pytest.raises(CannotInject, match="did not come back to Python within"):
            inject(process.pid, timeout_s=0.2)
        until(lambda: state(process) == "S")
        process.send_signal(signal.SIGINT)  # ends the sleep; the request is due
        _, errors = process.communicate()
        assert errors.splitlines()[-1] == "KeyboardInterrupt" and "tuimon" not in errors
        assert not (tmp_path / "rings").exists()


@needs_gdb
def test_a_handler_that_raises_while_our_statement_runs(tmp_path, monkeypatch):
    """The program gets the exception, and its hooks."""
    ours = launch.statement
    interrupting = f"import os, time; os.kill(os.getpid(), {signal.SIGUSR1:d}); time.sleep(0.1)\n"
    monkeypatch.setattr(launch, "statement", lambda script: interrupting + ours(script))
    also = "import signal; signal.signal(signal.SIGUSR1, lambda *_: {}['raised'])"
    with training(tmp_path, sys.executable, also) as process:
        until(lambda: int(status(process.pid, "SigCgt"), 16) >> signal.SIGUSR1 - 1 & 1)
        assert not inject(process.pid)
        _, errors = process.communicate()
    assert errors.count("Traceback") == 1 and errors.splitlines()[-1] == "KeyError: 'raised'"


def status(pid, name):
    return Path(f"/proc/{pid}/status").read_text().split(f"{name}:\t")[1].split()[0]


@writes_all_registers
def test_no_exception_of_a_timer_is_lost(tmp_path):
    """Nor printed; the hooks come and go meanwhile."""
    with training(tmp_path, sys.executable, TIMER) as process:
        for _ in range(5):
            hooks = Hooks(process.pid)
            hooks.bring_in()
            hooks.withdraw()  # or the order was interrupted, and they stay
        out, errors, code = ended(process)
    counts, over = out.splitlines()
    raised, caught = map(int, counts.split())
    assert (over.split()[0], errors, code) == ("over", "", 0)  # with the batch at which it was interrupted last
    assert raised == caught > 10


#: Every 2 ms an exception, which the program catches.
TIMER = """
    if "raised" not in globals():
        import signal
        raised = caught = 0
        armed = False
        def handler(signum, frame):
            global raised, armed
            if armed:
                armed, raised = False, raised + 1
                raise KeyError("raised")
        signal.signal(signal.SIGALRM, handler)
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        while True:
            for batch in loader:
                torch.autograd.backward(batch)
                optimizer.step()
    except KeyError:
        caught += 1
    if ending:
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(raised, caught)
"""


# -- refusals


def test_stopped(tmp_path):
    with training(tmp_path, sys.executable) as process:
        process.send_signal(signal.SIGSTOP)
        stopped(process)
        assert "is stopped" in refusal(process.pid).message
        process.send_signal(signal.SIGCONT)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_of_another_user():
    with child_process("sleep", "1000", user=65534) as process:
        assert "belongs to" in refusal(process.pid).message


def test_without_torch():
    process = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
    process.stdout.readline()
    assert "has not imported torch yet" in refusal(process.pid).message
    process.communicate(b"\n")
    assert process.returncode == 0


def test_without_gdb(tmp_path, monkeypatch):
    with training(tmp_path, sys.executable) as process:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "gdb is not installed" in refusal(process.pid).message


@needs_gdb
def test_traced_by_another_debugger(tmp_path):
    with training(tmp_path, sys.executable) as process:
        debugger = subprocess.Popen(["gdb", "-nx", "-q", "-p", str(process.pid)], stdin=-1, stdout=-1, stderr=-1)
        until(lambda: "TracerPid:\t0" not in Path(f"/proc/{process.pid}/status").read_text())
        assert f"traced by process {debugger.pid}" in refusal(process.pid).message
        debugger.communicate(b"detach\nquit\n")


def test_remote_debugging_off(tmp_path):
    with training(tmp_path, at_hand.python("3.14"), extra={"PYTHON_DISABLE_REMOTE_DEBUG": "1"}) as process:
        assert "remote debugging off" in refusal(process.pid).message


def test_a_process_with_other_files(tmp_path):
    """In its own mount namespace, as in a container."""
    agent, ready = tmp_path / "agent", tmp_path / "ready"
    agent.mkdir()
    wait = f"mount -t tmpfs none {agent} && touch {ready} && exec sleep 1000"
    with child_process("unshare", "-m", "sh", "-c", wait, stderr=subprocess.DEVNULL) as process:
        until(lambda: ready.exists() or process.poll() is not None)
        if process.poll() is not None:
            pytest.skip("no mount namespace may be made here")
        with pytest.raises(CannotInject, match="does not see the files"):
            target.check_sees(process.pid, str(agent))
        target.check_sees(process.pid, str(tmp_path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("7f00-7f01 r-xp 00000000 08:01 42 /lib/ld-musl-x86_64.so.1\n", "musl"),
        ("7f00-7f01 r-xp 00000000 08:01 42 /usr/lib/libpython3.8.so.1.0\n", "runs Python 3.8"),
    ],
)
def test_what_its_memory_map_shows(line, message, monkeypatch):
    more = "7f00-7f01 r-xp 00000000 08:01 42 /usr/bin/python3.11\n7f00-7f01 r-xp 0 08:01 42 /x/libtorch_python.so\n"
    only = line if "libpython" in line else line + more
    monkeypatch.setattr("tuimon.proc.procfs.read_maps", lambda pid: only.encode())
    assert message in refusal(os.getpid()).message


def test_a_python_without_symbols(monkeypatch):
    monkeypatch.setattr(gdb, "find_functions", lambda *_: {})
    part = target.MappedPart(0, 1, 0, True, "/usr/bin/python3.11")
    with pytest.raises(CannotInject, match="linked statically, without symbols"):
        gdb.functions_for(target.Target(1, 11, (part,), (part,)))


@needs_gdb
@pytest.mark.parametrize("flags", ["0x02", "0x21"])
def test_no_page_for_code(flags, tmp_path, monkeypatch):
    """It cannot be mapped, as under SELinux, or not be written: refused at once, and the training goes on."""
    monkeypatch.setattr(gdb, "SCRIPT", gdb.SCRIPT.replace("0x22, -1, 0)", f"{flags}, -1, 0)"))
    with training(tmp_path, sys.executable) as process:
        assert "may not be given code" in refusal(process.pid).message


# -- a processor with AMX, whose registers gdb before 14 cannot write

#: What gdb 13 prints there.
REFUSED = """\
0x00007f7cb763e829 in syscall () from /lib/x86_64-linux-gnu/libc.so.6
/tmp/tuimon-gdb-1/script:40: Error in sourced command file:
Couldn't write extended state status: Bad address.
[Inferior 1 (process 1) detached]
"""


def gdb_in_path(folder, script, monkeypatch):
    path = folder / "bin" / "gdb"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


@pytest.fixture
def amx_kernel(tmp_path, monkeypatch):
    """gdb is answered as the kernel would answer it on a processor with AMX."""
    compiler, real = shutil.which("cc") or shutil.which("gcc"), shutil.which("gdb")
    if compiler is None or real is None or platform.machine() != "x86_64":
        pytest.skip("needs gdb and a C compiler, on x86-64")
    if int(gdb.gdb_version(real).partition(".")[0]) >= 14:
        pytest.skip("this gdb writes the whole state of such a processor")
    library = tmp_path / "amx_kernel.so"
    source = Path(__file__).with_name("amx_kernel.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=60)
    gdb_in_path(tmp_path, f'LD_PRELOAD={library} exec {real} "$@"', monkeypatch)


#: A thread whose wait the C library would end the process for, if it came back from the kernel with an unknown error.
WAITS = """
    import threading
    if threading.active_count() == 1:
        threading.Thread(target=threading.Event().wait, args=(1000,), daemon=True).start()
"""


@needs_gdb
@pytest.mark.usefixtures("amx_kernel")
def test_fewer_registers_are_enough_where_a_thread_is_in_a_system_call(tmp_path):
    with training(tmp_path, sys.executable, also=WAITS) as process:
        for _ in range(3):
            hooks = Hooks(process.pid)
            hooks.bring_in()
            until(lambda: steps(process.pid))
            assert hooks.withdraw() == "the hooks are withdrawn"


@needs_gdb
@pytest.mark.usefixtures("amx_kernel")
def test_a_newer_gdb_is_named_if_few_points_are_safe(tmp_path, monkeypatch):
    whole = gdb.script_for

    def script_for(*given):
        few = len(given) == 4  # with the file of the known registers
        return whole(*given).replace("set $chosen = $_thread", "set $chosen = 0") if few else whole(*given)

    monkeypatch.setattr(gdb, "script_for", script_for)
    with training(tmp_path, sys.executable) as process, pytest.raises(CannotInject) as caught:
        inject(process.pid)
    assert "no safe point in 100 tries" in caught.value.message
    assert (caught.value.hint or "").startswith("gdb 14 or newer finds more")


@needs_gdb
@pytest.mark.usefixtures("amx_kernel")
def test_registers_that_cannot_be_written_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("REFUSES_ALL", "1")
    with training(tmp_path, sys.executable, also=WAITS) as process:
        message = refusal(process.pid).message
    assert message.startswith("gdb could not reach") and "Couldn't write floating point status" in message


def test_an_old_gdb_is_named_with_the_one_that_can(tmp_path, monkeypatch):
    says = "echo 'GNU gdb (Debian 13.1-3) 13.1'"
    gdb_in_path(tmp_path, f'case "$1" in --version) {says};; *) cat <<"END"\n{REFUSED}END\nesac', monkeypatch)
    with training(tmp_path, sys.executable) as process, pytest.raises(CannotInject) as caught:
        inject(process.pid)
    assert caught.value.message == "gdb 13.1 cannot write this processor's registers"
    assert (caught.value.hint or "").startswith("gdb 14 or newer can. Or start it again")


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (REFUSED, "Couldn't write extended state status: Bad address."),
        (
            "warning: no debug info\nptrace: No such process.\n[Inferior 1 (process 1) detached]\n",
            "ptrace: No such process.",
        ),
        ("[Inferior 1 (process 1) detached]\n\n", "[Inferior 1 (process 1) detached]"),
        ("", "no output"),
    ],
)
def test_the_error_of_gdb_is_told_and_not_what_it_says_besides(output, line):
    assert gdb.error_line(output) == line


# -- gdb ends early


@needs_gdb
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_gdb_that_is_killed_leaves_the_training_running(number, tmp_path, monkeypatch):
    """While it holds the process stopped and looks for a safe point: no breakpoints are left behind."""
    kill = f"shell kill -{number:d} $PPID"
    monkeypatch.setattr(gdb, "SCRIPT", gdb.SCRIPT.replace("thread apply all tuimon_place", kill))
    monkeypatch.setattr(gdb, "TRIES", 10)
    says = "ended by signal 9 " if number == signal.SIGKILL else "no safe point in 10 tries"  # deaf to the others
    with training(tmp_path, sys.executable) as process:
        for _ in range(3):
            assert says in refusal(process.pid).message
            until(lambda: state(process) in "RS")


def started(monkeypatch, command, mark):
    """Has gdb be another program, which has printed the mark when tuimon first looks at it; the processes."""
    start, children = gdb.started, []

    def begun(_, printed):
        children.append(start(command, printed))
        until(lambda: mark in os.pread(printed.fileno(), 100, 0))
        return children[-1]

    monkeypatch.setattr(gdb, "started", begun)
    return children


def test_what_a_killed_gdb_has_forked_ends_too(monkeypatch, tmp_path):
    """Its child waits stopped to be traced, and would for good."""
    pid = tmp_path / "pid"
    children = started(
        monkeypatch, ["sh", "-c", f"sleep 1000 & kill -STOP $!; echo $! > {pid}; echo; kill -9 $$"], b"\n"
    )
    with pytest.raises(CannotInject, match="gdb was ended by signal 9 "):
        gdb.run_gdb([], os.getpid())
    stat = f"/proc/{int(pid.read_text())}/stat"
    until(lambda: (found := procfs.parse_stat(procfs.read_bytes(stat) or b"")) is None or found.state == "Z")
    assert children[0].returncode == -signal.SIGKILL


def test_gdb_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(gdb, "GDB_TIMEOUT_S", 0.0)
    children = started(monkeypatch, ["sh", "-c", "echo 'tuimon: stops'; exec sleep 1000"], b"stops\n")
    with pytest.raises(CannotInject, match="gdb was ended after 0 s and 1 tries to stop process"):
        gdb.run_gdb([], os.getpid())
    assert children[0].returncode == -signal.SIGKILL


def test_all_that_gdb_prints_is_read():
    """With many threads and tries it is several megabytes."""
    printed = gdb.run_gdb(["sh", "-c", "yes | head -c 2000000; echo 'tuimon: done'"], os.getpid())
    assert printed.endswith("tuimon: done\n")


#: Whatever it does when it is stopped and continued.
CALLS = "trap '{}' CONT; echo 'tuimon: calls'; while :; do sleep 0.01; done"


def test_gdb_in_its_call_is_not_killed(monkeypatch):
    """That would end the training: it has the time that it needs."""
    monkeypatch.setattr(gdb, "GDB_TIMEOUT_S", 0.0)
    done = "tuimon: done 1 result 0 tries 1"
    children = started(monkeypatch, ["sh", "-c", CALLS.format(f"echo {done}; exit")], b"calls\n")
    assert gdb.run_gdb([], os.getpid()).splitlines()[-1] == done
    assert children[0].returncode == 0


def test_gdb_that_does_not_come_back_from_its_call_is_left_alone(monkeypatch):
    monkeypatch.setattr(gdb, "GDB_TIMEOUT_S", 0.0)
    monkeypatch.setattr(gdb, "CALL_S", 0.0)
    children = started(monkeypatch, ["sh", "-c", CALLS.format("")], b"calls\n")
    with pytest.raises(CannotInject, match="does not come back from its call") as caught:
        gdb.run_gdb([], os.getpid())
    (child,) = children
    assert str(child.pid) in caught.value.message and child.poll() is None
    child.kill()
    child.wait()


@needs_gdb
def test_the_time_in_which_gdb_waits_for_a_core_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(gdb, "GDB_TIMEOUT_S", 0.0)
    monkeypatch.setattr(procfs, "waited_s", lambda pid: 1000.0)
    with training(tmp_path, sys.executable) as process:
        assert not inject(process.pid)


def test_functions_are_where_the_linker_has_put_them():
    """Of this Python and its C library, against what dlsym(3) says."""
    import ctypes

    with open("/proc/self/maps", "rb") as file:
        maps = target.parse_maps(file.read())
    found = target.python_mappings(os.getpid(), maps)
    names = ("Py_AddPendingCall", "PyRun_SimpleString", "PyDict_SetItem", "no_such_function")
    functions = target.find_functions(target.Target(os.getpid(), 0, found, ()).python_file, found, names)
    assert functions.keys() == {*names[:-1]}
    for name, function in functions.items():
        address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        assert function.start == address and function.end > function.start


# -- the script that runs in the process


def test_exceptions_of_signal_handlers_reach_the_program(tmp_path):
    """The program's timer raises an exception with arguments while the script runs: it comes out after it, whole."""
    boot = (target.os.path.dirname(files.__file__)).rsplit("/", 1)[0] + "/boot.py"
    program = f"""
import signal, sys, time
names = {{"__name__": "boot"}}
exec(compile(open({boot!r}).read(), "boot", "exec"), names)
names["_load"] = lambda request, go_on: (time.sleep(0.05), go_on())

class Late(Exception):
    def __init__(self, reason, after):
        super().__init__(reason, after)
        self.after = after

calls = caught = 0
def ring(number, frame):
    global calls
    calls += 1
    if number == signal.SIGALRM:
        raise Late("late", calls) if calls % 2 else KeyboardInterrupt
    raise SystemExit(7)

signal.signal(signal.SIGALRM, ring)
signal.signal(signal.SIGTERM, ring)
for n in range(4):
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        names["begin"]({{"folder": "/nowhere"}})
        for _ in range(1000):
            pass
    except Late as error:
        assert error.args == ("late", calls) and error.after == calls and type(error).__name__ == "Late"
        caught += 1
    except KeyboardInterrupt:
        caught += 1
print(calls, caught, flush=True)
import os, threading
threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGTERM)).start()
names["begin"]({{"folder": "/nowhere"}})
for _ in range(1000):
    pass
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("4 4\n", "", 7)
