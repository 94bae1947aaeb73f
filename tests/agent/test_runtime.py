"""The ring of a process: where it is made, who gets one, when it goes."""

import os
import stat
import subprocess
import sys
import textwrap
import time

import pytest

from tests.agent.programs import environment, fake_torch, python, said
from tuimon.agent import runtime
from tuimon.agent.process import facts, precision
from tuimon.agent.ring import files, layout, paths
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.ring.writer import RingWriter

PREAMBLE = """
import json, os, sys, torch
from _tuimon_agent import runtime
from _tuimon_agent.ring import layout, paths
"""


@pytest.fixture
def program(tmp_path):
    """Runs a script that has imported a torch of no weight; gives what it printed as JSON."""
    env = environment(tmp_path / "rings", path=fake_torch(tmp_path))

    def run(body, **extra):
        script = PREAMBLE + textwrap.dedent(body)
        return said(python("-c", script, "an argument", env=env | extra))

    return run


def grow_old(folder):
    """Make the files of a folder an hour old."""
    for name in os.listdir(folder):
        os.utime(folder / name, (time.time() - 3600,) * 2)


def names(folder):
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_a_process_has_one_ring_and_takes_it_along(program, tmp_path):
    body = "print(json.dumps([runtime._writer.path, os.listdir(os.environ['TUIMON_RING_DIR'])]))"
    path, listed = program(body, TUIMON_RUN="")
    assert listed == [os.path.basename(path)]
    assert names(tmp_path / "rings") == []


def test_a_short_run_leaves_its_ring_to_the_monitor(program, tmp_path):
    path = program("runtime.emit(layout.STEP); print(json.dumps(runtime._writer.path))", TUIMON_RUN="r")
    assert names(tmp_path / "rings") == [os.path.basename(path)]
    assert [marker.kind for marker in RingReader(path).read()] == [layout.STEP]


def test_the_ring_of_a_longer_run_goes_with_it(program, tmp_path):
    program("runtime._made_ns -= 60 * 10**9; print('null')", TUIMON_RUN="r")
    assert names(tmp_path / "rings") == []


def test_the_ring_is_found_by_pid(program):
    found = program("print(json.dumps([paths.ring_path(os.getpid()), runtime._writer.path]))")
    assert found[0] == found[1]


def test_the_directory_is_private(program, tmp_path):
    (tmp_path / "rings").mkdir(mode=0o777)
    program("print('null')")
    assert stat.S_IMODE((tmp_path / "rings").stat().st_mode) == 0o700


def test_a_link_in_place_of_the_directory_is_refused(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rings").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    assert files.make_ring() is None
    assert names(tmp_path / "elsewhere") == []


def test_somebody_elses_directory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert files.make_ring() is None
    assert names(tmp_path / "rings") == []


def test_a_full_first_place_falls_back_to_the_second(tmp_path, monkeypatch):
    places = [str(tmp_path / "full"), str(tmp_path / "roomy")]
    monkeypatch.setattr(files, "ring_directories", lambda: places)
    real = os.posix_fallocate

    def fallocate(handle, offset, length):
        if os.readlink(f"/proc/self/fd/{handle}").startswith(places[0]):
            raise OSError(28, "No space left on device")
        real(handle, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    made = files.make_ring()
    assert made is not None and made.path.startswith(places[1])
    assert names(tmp_path / "full") == []
    made.unlink()


def test_no_place_at_all_means_no_hooks_and_no_noise(tmp_path):
    (tmp_path / "file").write_text("")
    env = environment(tmp_path / "file", path=fake_torch(tmp_path))
    script = "import sys, torch; print(sys.modules['_tuimon_agent.runtime'].on, sys.meta_path[0].__class__)"
    done = python("-c", script, env=env)
    assert done.stdout.startswith("False") and "ImportWatch" not in done.stdout and done.stderr == ""


def test_places_in_order(monkeypatch, tmp_path):
    import tempfile

    monkeypatch.delenv("TUIMON_RING_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name = f"tuimon-{os.getuid()}"
    assert paths.ring_directories() == [f"/dev/shm/{name}", str(tmp_path / name)]


def dead_pid():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_rings_of_dead_processes_are_swept(program, tmp_path):
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    alive = f"{os.getpid()}-{paths.start_ticks(os.getpid())}.ring"
    dead = [f"{dead_pid()}-12345.ring", f"{os.getpid()}-1.ring", f"{dead_pid()}-5.ring.77"]
    kept = [alive, "notes.txt", "x-y.ring"]
    for name in dead + kept:
        (folder / name).write_text("")
    young = f"{dead_pid()}-6.ring"
    grow_old(folder)
    (folder / young).write_text("")
    program("print('null')", TUIMON_RUN="")
    assert names(folder) == sorted([*kept, young])  # the monitor may still want it


def test_a_ring_in_use_is_not_swept_even_if_its_pid_means_nothing_here(tmp_path):
    """Containers may share /dev/shm and not their pids."""
    writer = RingWriter(str(tmp_path / f"{dead_pid()}-12345.ring"), slot_count=64)
    path = writer.path
    grow_old(tmp_path)
    files._remove_stale(str(tmp_path))
    assert os.path.exists(path)
    del writer  # with its map goes the lock
    files._remove_stale(str(tmp_path))
    assert not os.path.exists(path)


def test_a_killed_process_leaves_a_ring_to_be_read_and_swept(program, tmp_path):
    env = environment(tmp_path / "rings", path=fake_torch(tmp_path))
    script = "import os, sys, torch; sys.modules['_tuimon_agent.runtime'].emit(12); os._exit(0)"
    python("-c", script, env=env)
    (left,) = names(tmp_path / "rings")
    reader = RingReader(str(tmp_path / "rings" / left))
    assert [marker.kind for marker in reader.read()] == [layout.STEP]
    grow_old(tmp_path / "rings")
    program("print('null')", TUIMON_RUN="")
    assert names(tmp_path / "rings") == []


def test_a_forked_child_writes_nothing_into_its_parents_ring(program):
    body = """
    from _tuimon_agent.ring.reader import RingReader
    parent = runtime._writer.path
    runtime.emit(layout.STEP)
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            own = [runtime._writer is None]
            for kind in (layout.FETCH_BEGIN, layout.FETCH_END, layout.RANGE_POP, layout.BACKWARD_END):
                runtime.emit(kind)
            own.append(runtime._writer is None)
            runtime.emit(layout.BACKWARD_BEGIN)
            runtime.emit(layout.BACKWARD_END)
            reader = RingReader(runtime._writer.path)
            own += [reader.pid == os.getpid(), reader.meta()["ppid"] == os.getppid(), runtime._writer.path != parent]
            own.append([marker.kind for marker in reader.read()])
            os.write(write, json.dumps(own).encode())
        finally:
            os._exit(0)
    os.wait()
    kinds = [marker.kind for marker in RingReader(parent).read()]
    print(json.dumps([kinds, json.loads(os.read(read, 10000)), os.path.exists(parent)]))
    """
    kinds, child, still_there = program(body)
    assert kinds == [layout.STEP] and still_there
    assert child == [True, True, True, True, True, [layout.BACKWARD_BEGIN, layout.BACKWARD_END]]


def test_a_forked_child_that_ends_normally_leaves_the_parents_ring(program):
    body = """
    if os.fork() == 0:
        sys.exit(0)  # runs the parent's atexit handlers
    os.wait()
    print(json.dumps(os.path.exists(runtime._writer.path)))
    """
    assert program(body) is True


def test_a_process_that_replaces_itself_has_a_new_ring(program, tmp_path):
    body = """
    from _tuimon_agent.ring.reader import RingReader
    if "again" not in sys.argv:
        os.environ["OLD_INODE"] = str(os.stat(runtime._writer.path).st_ino)
        os.execv(sys.executable, [sys.executable, "-c", os.environ["BODY"], "again"])
    print(json.dumps([os.listdir(os.environ["TUIMON_RING_DIR"]) == [os.path.basename(runtime._writer.path)],
                      os.environ["OLD_INODE"] != str(os.stat(runtime._writer.path).st_ino)]))
    """
    script = PREAMBLE + textwrap.dedent(body)
    assert program(body, BODY=script) == [True, True]


def test_the_facts_of_a_process(program):
    body = """
    from _tuimon_agent.ring.reader import RingReader
    print(json.dumps([RingReader(runtime._writer.path).meta(), os.getpid(), os.getcwd(), sys.orig_argv[-1]]))
    """
    meta, pid, cwd, last = program(
        body, RANK="3", LOCAL_RANK="1", WORLD_SIZE="8", TUIMON_OUTPUT="/o", CUDA_VISIBLE_DEVICES="2,3"
    )
    assert meta["argv"][-1] == last == "an argument"
    assert (meta["pid"], meta["ppid"], meta["cwd"]) == (pid, os.getpid(), cwd)
    expected = {
        "run": "test",
        "output": "/o",
        "rank": 3,
        "local_rank": 1,
        "world_size": 8,
        "cuda_visible_devices": "2,3",
        "gpu_uuids": [],
        "torch": "0.0",
        "nvtx": False,
        "root": sys.executable,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
    assert {key: meta[key] for key in expected} == expected


class FakeCuda:
    """What ``torch.cuda`` says once the user has initialised it."""

    def __init__(self, initialized):
        self._initialized = initialized

    def is_initialized(self):
        return self._initialized

    def current_device(self):
        assert self._initialized, "asking would initialise CUDA"
        return 1

    def device_count(self):
        return 3

    def memory_reserved(self, index):
        return [0, 0, 1024][index]

    def get_device_properties(self, index):
        import types

        return types.SimpleNamespace(uuid=f"0000-{index}")


def test_gpus_are_named_once_cuda_is_initialised_and_never_before(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.cuda", FakeCuda(False))
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.setattr(precision, "_types", [])  # of the optimizers that other tests have stepped
    assert facts.late_facts() == {}
    monkeypatch.setitem(sys.modules, "torch.cuda", FakeCuda(True))
    assert facts.late_facts() == {"gpu_uuids": ["GPU-0000-1", "GPU-0000-2"]}


def test_facts_that_stay_unknown_are_given_up(monkeypatch, shared_memory):
    calls = []
    monkeypatch.setattr(facts, "late_facts", lambda optimizer: calls.append(1) or {})
    monkeypatch.setattr(runtime, "on", True)
    assert runtime.open_ring()
    while runtime.facts_due:
        runtime.publish_facts()
    assert len(calls) == 7  # 1, 2, 4 ... 64
    runtime.stop()


def test_tracers_are_allowed_under_yama(monkeypatch):
    import ctypes

    from tuimon.agent.process import yama

    calls = []

    class Libc:
        def __init__(self, name):
            self.prctl = lambda *arguments: calls.append(arguments)

    monkeypatch.setattr(ctypes, "CDLL", Libc)
    for scope, expected in ((0, 0), (1, 1)):
        monkeypatch.setattr(yama, "_restricted", None)
        monkeypatch.setattr(yama, "_scope", lambda scope=scope: scope)
        yama.allow_tracers()
        assert len(calls) == expected
    assert calls[0][0] == 0x59616D61 and calls[0][1].value == ctypes.c_ulong(-1).value
