"""The ring of a process: who gets one, and when it is removed."""

import os
import stat
import subprocess
import sys
import textwrap

from tests.agent.programs import PREAMBLE, environment, fake_torch, file_names, python
from tuimon.agent import runtime
from tuimon.agent.process import facts
from tuimon.agent.ring import files, layout
from tuimon.agent.ring.reader import RingReader


def test_a_process_has_one_ring_found_by_its_pid_in_a_private_folder_and_takes_it_along(program, tmp_path):
    own = "[runtime.writer().path, files.ring_path(os.getpid()), os.listdir(os.environ['TUIMON_RING_DIR'])]"
    path, found, listed = program(f"print(json.dumps({own}))", TUIMON_RUN="")
    assert (found, listed) == (path, [os.path.basename(path)])
    assert stat.S_IMODE((tmp_path / "rings").stat().st_mode) == 0o700
    assert file_names(tmp_path / "rings") == []


def test_a_short_run_leaves_its_ring_to_the_monitor(program, tmp_path):
    path = program("runtime.emit(layout.STEP); print(json.dumps(runtime.writer().path))", TUIMON_RUN="r")
    assert file_names(tmp_path / "rings") == [os.path.basename(path)]
    assert [marker.kind for marker in RingReader(path).read()] == [layout.STEP]


def test_the_ring_of_a_longer_run_goes_with_it(program, tmp_path):
    later = "time.monotonic_ns = lambda now=time.monotonic_ns: now() + 60 * 10**9"
    program(f"import time; {later}; print('null')", TUIMON_RUN="r")
    assert file_names(tmp_path / "rings") == []


def test_a_short_run_whose_tuimon_is_gone_takes_its_ring_along(program, tmp_path):
    killed = subprocess.Popen([sys.executable, "-c", ""])
    ticks, namespace = files.start_ticks(killed.pid), os.readlink("/proc/self/ns/pid")
    killed.wait()
    gone = f"{killed.pid}-{ticks}-{namespace}"
    body = "runtime.emit(layout.STEP); print(json.dumps(runtime.writer().path))"
    program(body, TUIMON_RUN="r", TUIMON_MONITOR=gone)
    assert file_names(tmp_path / "rings") == []
    runs = f"{os.getpid()}-{files.start_ticks(os.getpid())}-{namespace}"
    for name in (runs, f"{killed.pid}-{ticks}-pid:[1]", "x"):
        path = program(body, TUIMON_RUN="r", TUIMON_MONITOR=name)
        assert file_names(tmp_path / "rings") == [os.path.basename(path)]
        os.unlink(path)


def test_no_place_at_all_means_no_hooks_and_no_noise(tmp_path):
    (tmp_path / "file").write_text("")
    env = environment(tmp_path / "file", path=fake_torch(tmp_path))
    script = "import sys, torch; print(sys.modules['_tuimon_agent.runtime'].on, sys.meta_path[0].__class__)"
    done = python("-c", script, env=env)
    assert done.stdout.startswith("False") and "ImportWatch" not in done.stdout and done.stderr == ""


def test_a_forked_child_writes_nothing_into_its_parents_ring(program):
    body = """
    def child():
        own = [runtime.writer() is None]
        for kind in (layout.FETCH_BEGIN, layout.FETCH_END, layout.RANGE_POP, layout.BACKWARD_END):
            runtime.emit(kind)
        own.append(runtime.writer() is None)
        runtime.emit(layout.BACKWARD_BEGIN)
        runtime.emit(layout.BACKWARD_END)
        reader = RingReader(runtime.writer().path)
        own += [reader.pid == os.getpid(), runtime.writer().path != parent]
        return [*own, [marker.kind for marker in reader.read()]]

    parent = runtime.writer().path
    runtime.emit(layout.STEP)
    found = in_child(child)
    kinds = [marker.kind for marker in RingReader(parent).read() if marker.kind != layout.GC_PAUSE]
    print(json.dumps([kinds, found, os.path.exists(parent)]))
    """
    kinds, child, still_there = program(body)
    assert kinds == [layout.STEP] and still_there
    assert child == [True, True, True, True, [layout.BACKWARD_BEGIN, layout.BACKWARD_END]]


def test_a_forked_child_whose_first_marker_has_a_name_makes_one_ring(program):
    body = """
    import tuimon

    def child():
        tuimon.mark("begin")
        reader = RingReader(runtime.writer().path)
        names = [reader.name(marker.value).split(layout.PLACE_SEPARATOR)[0] for marker in reader.read()]
        return [len(rings), names]

    made, rings = runtime.make_ring, []
    runtime.make_ring = lambda: rings.append(made()) or rings[-1]
    print(json.dumps(in_child(child)))
    """
    assert program(body) == [1, ["begin"]]


def test_a_forked_child_that_ends_normally_leaves_the_parents_ring(program):
    body = """
    if os.fork() == 0:
        sys.exit(0)  # runs the parent's atexit handlers
    os.wait()
    print(json.dumps(os.path.exists(runtime.writer().path)))
    """
    assert program(body) is True


def test_a_process_that_replaces_itself_has_a_new_ring(program, tmp_path):
    body = """
    if "again" not in sys.argv:
        os.environ["OLD_INODE"] = str(os.stat(runtime.writer().path).st_ino)
        os.execv(sys.executable, [sys.executable, "-c", os.environ["BODY"], "again"])
    print(json.dumps([os.listdir(os.environ["TUIMON_RING_DIR"]) == [os.path.basename(runtime.writer().path)],
                      os.environ["OLD_INODE"] != str(os.stat(runtime.writer().path).st_ino)]))
    """
    script = PREAMBLE + textwrap.dedent(body)
    assert program(body, BODY=script) == [True, True]


def test_a_forked_child_that_ends_at_once_has_written_all_before(program):
    """Those of multiprocessing end without ``atexit``."""
    body = """
    import multiprocessing

    def train(paths):
        for _ in range(100):
            runtime.emit(layout.MARK)
        paths.send(runtime.writer().path)
        paths.recv()  # its reader has begun
        for _ in range(100):
            runtime.emit(layout.MARK)

    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=train, args=(theirs,))
    child.start()
    reader = RingReader(ours.recv())
    seen = len(reader.read())
    ours.send("go on")
    child.join()
    print(json.dumps(seen + len(reader.read())))
    """
    assert program(body) == 200


def test_facts_that_stay_unknown_are_given_up(monkeypatch, shared_memory):
    calls = []
    monkeypatch.setattr(facts, "late_facts", lambda: calls.append(1) or {})
    monkeypatch.setattr(runtime, "on", True)
    assert runtime.open_ring()
    while runtime.facts_due:
        runtime.publish_facts()
    assert len(calls) == 7  # 1, 2, 4 ... 64
    runtime.stop()
