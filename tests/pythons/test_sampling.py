"""Stack samples of every Python at hand, and of Pythons inside other programs."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.pythons import at_hand
from tests.sources.programs import running
from tests.sources.stacks.sampling import reading, trainer
from tests.waiting import until
from tuimon.proc import procfs
from tuimon.proc.processes import command_line, is_free_threaded, is_python
from tuimon.proc.procfs import os_ids
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.source import ProcessSource
from tuimon.sources.stacks import pyspy

if pyspy.find() is None:
    pytest.skip("py-spy is not installed", allow_module_level=True)

BUSY = """
import threading, time

def crunch():
    while True:
        sum(i * i for i in range(1000))

def wait():
    while True:
        time.sleep(0.001)

sleeper = threading.Thread(target=wait, name="sleeper", daemon=True)
sleeper.start()
print(sleeper.native_id, flush=True)
crunch()
"""


@pytest.mark.parametrize("version", at_hand.VERSIONS)
def test_threads_and_hot_lines(version: str, tmp_path: Path) -> None:
    with (
        running(tmp_path, BUSY, python=at_hand.python(version)) as process,
        reading(trainer(process.pid), max_cpu_ratio=1.0) as reader,
    ):
        reader.until(lambda it: it.functions() >= {"crunch", "wait"}, "a window")
        (sleeper,) = set(procfs.thread_ids(process.pid)) - {process.pid}
        assert is_python(process.pid) and not is_free_threaded(process.pid)
        stacks = [stack for window in reader.stacks for stack in window.stacks]
        assert {stack.tid: stack.thread for stack in stacks} == {process.pid: "MainThread", sleeper: "sleeper"}
        main = [stack for stack in stacks if stack.thread == "MainThread"]
        places = {(reader.frames[n].function, reader.frames[n].line) for stack in main for n in stack.frames}
        assert ("<module>", 15) in places
        assert any(frame.source.startswith("sum(i * i") for frame in reader.frames)
        assert reader.notices == []
        dumped = {thread.name: thread.tid for thread in pyspy.dump(pyspy.find() or "", process.pid)}
        assert dumped == {"MainThread": process.pid, "sleeper": sleeper}


@pytest.mark.parametrize("version", at_hand.FREE_THREADED)
def test_a_python_without_a_gil_is_left_to_its_agent(version: str, tmp_path: Path) -> None:
    with running(tmp_path, BUSY, python=at_hand.python(version)) as process, reading(trainer(process.pid)) as reader:
        reader.until(lambda it: it.notices, "a notice")
        assert is_python(process.pid) and is_free_threaded(process.pid)
        assert "py-spy cannot read free-threaded Python" in reader.notices[0].message


# -- Python inside another program

EMBEDDING = "#include <Python.h>\nint main(int argc, char **argv) { return Py_BytesMain(argc, argv); }\n"


@pytest.fixture(scope="module", params=["libpython", "static", "stripped"])
def host_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program with a Python inside: libpython loaded, linked into it, and without its symbols."""
    compiler, config = shutil.which("cc"), sysconfig.get_config_vars()
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("host")
    (folder / "main.c").write_text(EMBEDDING)
    program = folder / "simulator"
    command = [compiler, str(folder / "main.c"), "-o", str(program), f"-I{config['INCLUDEPY']}", "-rdynamic"]
    libraries = [*str(config["LIBS"]).split(), *str(config["SYSLIBS"]).split()]
    if request.param == "libpython":
        where = str(config["LIBDIR"])
        command += [f"-L{where}", f"-Wl,-rpath,{where}", f"-lpython{config['LDVERSION']}", *libraries]
    else:
        command += ["-no-pie", _static_library(), *libraries, "-lz", "-lexpat"]
    if request.param == "stripped":
        command.append("-s")
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        pytest.skip(f"cannot be linked here: {done.stderr.splitlines()[-1]}")
    return str(program)


def _static_library() -> str:
    """The largest of what this Python brings, if it brings any: the shared one's import library is small."""
    config = sysconfig.get_config_vars()
    folders = [Path(str(config[name])) for name in ("LIBPL", "LIBDIR")]
    found = [path for folder in folders for path in folder.glob(f"libpython{config['LDVERSION']}.a")]
    if not found:
        pytest.skip("this Python has no static library")
    return str(found[0])


def test_an_embedded_python_is_found_and_sampled(host_program: str, tmp_path: Path) -> None:
    with running(tmp_path, BUSY, python=host_program) as process:
        assert is_python(process.pid)
        table = ProcessTable(process.pid, None)
        processes = ProcessSource(table, 1.0)
        until(lambda: [*processes.read()] and table.roles.get(process.pid) == "trainer", "its role")
        with reading(table, max_cpu_ratio=1.0) as reader:
            reader.until(lambda it: "crunch" in it.functions(), "a window")


def test_programs_without_a_python_are_none() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        until(lambda: command_line(process.pid) == ["sleep", "1000"], "exec")
        assert not is_python(process.pid)
    finally:
        process.kill()
        process.wait()
    assert not is_python(process.pid)


@pytest.mark.parametrize(
    ("loaded", "is_free"),
    [
        ("libpython3.14t.so.1.0", True),
        ("python3.13t/lib-dynload/_bz2.so", True),
        ("x/_json.cpython-314t-x86_64-linux-gnu.so", True),
        ("libpython3.14.so.1.0", False),
        ("x/_json.cpython-314-x86_64-linux-gnu.so", False),
    ],
)
def test_a_free_threaded_python_is_known_by_what_it_has_loaded(
    loaded: str, is_free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = f"7f00-7f01 r-xp 00000000 08:01 42 /opt/py/lib/{loaded}\n".encode()
    monkeypatch.setattr("tuimon.proc.procfs.read_maps", lambda pid: maps)
    monkeypatch.setattr("tuimon.proc.processes.program_name", lambda pid: "simulator")
    assert is_free_threaded(1) == is_free


def test_thread_ids_that_mean_nothing_stay_as_they_are(tmp_path: Path) -> None:
    with running(tmp_path, BUSY) as process:
        assert os_ids(process.pid, [process.pid, 1 << 30, 1 << 70]) == {}
    assert os_ids(process.pid, [1 << 30]) == {}
