"""py-spy: how it is started, what it writes, why it fails, and steps a second from the order of its samples."""

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.sources.stacks.sampling import fake_pyspy
from tests.waiting import until
from tuimon.proc.ring_facts import RawFrame
from tuimon.sources.stacks import failures, pyspy, speedscope


def test_pyspy_is_never_looked_up_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "py-spy"
    planted.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(sys, "path", ["", "."])
    _install(tmp_path, "py-spy")
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", "..", f"../{tmp_path.name}"]))
    assert pyspy.find() is None
    monkeypatch.setenv("PATH", f".{os.pathsep}{tmp_path}")
    assert pyspy.find() == str(planted)
    planted.chmod(0o644)
    assert pyspy.find() is None


def _install(folder: Path, script: str) -> None:
    """The metadata that pip leaves in a folder of packages: ``script`` is where it says that it put py-spy."""
    info = folder / "py_spy-0.4.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: py-spy\nVersion: 0.4.1\n")
    (info / "RECORD").write_text(f"{script},,\npy_spy-0.4.1.dist-info/METADATA,,\n")


@pytest.mark.parametrize(
    ("packages", "recorded", "script"),
    [
        ("packages", "../../bin/py-spy", "packages/bin/py-spy"),  # pip install --target
        ("lib/python3.12/site-packages", "../../../bin/py-spy", "bin/py-spy"),  # pip install --user, --prefix
    ],
)
def test_pyspy_is_found_where_it_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: str, recorded: str, script: str
) -> None:
    _install(tmp_path / packages, recorded)
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path / packages)])
    monkeypatch.setenv("PATH", "")
    assert pyspy.find() is None
    (tmp_path / script).parent.mkdir(exist_ok=True)
    (tmp_path / script).touch(0o755)
    found = pyspy.find()
    assert found is not None and os.path.samefile(found, tmp_path / script)


PROFILE = '{"profiles": [{"name": "Thread 1", "samples": [[], []]}], "shared": {"frames": []}}'


def test_samples_that_pyspy_could_not_read_are_counted(tmp_path: Path) -> None:
    said = "py-spy> Wrote it. Samples: 2 Errors: 7"
    fake = fake_pyspy(tmp_path, f"echo '{said}'\necho '{PROFILE}' >/proc/self/fd/3")
    recording = pyspy.PySpyRecording.start(fake, os.getpid(), 20, 30.0)
    ended = until(lambda: recording.poll(time.monotonic()), "the child to end")
    assert ended.samples is not None
    assert ended.samples.instants == 2
    assert ended.failed == 7


def test_one_that_begins_late_samples_for_as_long_as_any_other(tmp_path: Path) -> None:
    go, profile = tmp_path / "go", tmp_path / "profile"
    profile.write_text(PROFILE)
    script = f"trap 'cat {profile} >/proc/self/fd/3; exit' INT\nuntil [ -e {go} ]; do sleep 0.05; done\n"
    fake = fake_pyspy(tmp_path, script + "echo 'py-spy> Sampling process'\nwhile :; do sleep 0.05; done")
    recording = pyspy.PySpyRecording.start(fake, os.getpid(), 20, 0.5)
    begin_s = recording.started_s
    for late_s in (0.5, 2.0):
        assert recording.poll(begin_s + late_s) is None and not recording.stopping
    go.touch()
    until(lambda: os.fstat(recording.messages).st_size, "it to begin")
    assert recording.poll(begin_s + 2.25) is None and not recording.stopping
    assert recording.poll(begin_s + 2.5) is None and recording.stopping
    ended = until(lambda: recording.poll(begin_s + 2.75), "its file")
    assert ended.samples is not None and not ended.interrupted
    assert ended.window_s == pytest.approx(0.5)


def test_what_pyspy_says_becomes_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"
    me = os.getpid()
    monkeypatch.setattr(failures, "in_container", lambda: True)
    assert "--cap-add SYS_PTRACE" in (failures.explain(denied, me).hint or "")
    monkeypatch.setattr(failures, "in_container", lambda: False)
    for scope_now, word in (
        (1, "kernel.yama.ptrace_scope=0"),
        (2, "sudo"),
        (3, "reboot"),
        (0, "seccomp"),
        (None, "seccomp"),
    ):
        monkeypatch.setattr(failures, "yama_scope", lambda scope_now=scope_now: scope_now)
        assert word in (failures.explain(denied, me).hint or "")
    unsupported = failures.explain("Error: Unsupported version of Python: 3.99.0\n\nStack backtrace:\n  0: x", me)
    assert unsupported.message == "no stack samples: py-spy does not know Python 3.99.0"
    early = failures.explain("Error: Failed to find python version from target process", me)
    assert early.passing
    other = failures.explain("Error: \x1b[31mSomething else\n\nStack backtrace:\n   0: foo", me)
    assert other.message == f"no stack samples of process {me}: Something else"
    assert "py-spy gave no reason" in failures.explain("", me).message
    assert failures.explain("Error: Failed to find a python interpreter in the .data section", me).passing


def test_pyspys_environment_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "full")
    monkeypatch.setenv("RUST_LOG", "debug")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    env = pyspy.environment()
    assert not [name for name in env if name.startswith("RUST_")]
    assert env["LC_ALL"] == "C"
    assert env["PATH"] == os.environ["PATH"]


#: The name that Python gives the main thread.
MAIN = threading.main_thread().name


def scope(profiles: list[dict[str, object]], names: list[dict[str, object]]) -> bytes:
    return json.dumps({"profiles": profiles, "shared": {"frames": names}, "exporter": "py-spy@0.4.3"}).encode()


def test_speedscope() -> None:
    raw = scope(
        [
            {"type": "sampled", "name": 'Thread 43 "a "quoted"\nname"', "samples": [[2, 0]], "weights": [0.1]},
            {"type": "sampled", "name": 'Thread 42 "MainThread"', "samples": [[3, 0, 1], [3, 0], [3, 0, 1]]},
            {"type": "sampled", "name": "Thread 44", "samples": [[], [9]]},
        ],
        [
            {"name": "main", "file": "/t.py", "line": 3, "col": None},
            {"name": "Outer.<locals>.inner", "file": "/t.py", "line": None},
            {"name": "thread (43): x", "file": "", "line": 0},
            {"name": "thread (42): MainThread", "file": "", "line": 0},
        ],
    )
    samples = speedscope.parse_speedscope(raw, 42)
    assert samples.instants == 3
    assert [(t.tid, t.name) for t in samples.threads] == [(42, "MainThread"), (43, 'a "quoted"\nname'), (44, "")]
    main, inner = RawFrame("/t.py", 3, "main"), RawFrame("/t.py", 0, "inner")
    assert samples.threads[0].stacks == {(main, inner): 2, (main,): 1}
    assert samples.threads[2].stacks == {(): 2}  # a frame that is not in the table is left out


def test_before_python_3_11_the_main_thread_gets_the_id_of_its_process() -> None:
    raw = scope([{"name": f"Thread {label}", "samples": [[]]} for label in ('0x7F1 "x"', f'0x7F2 "{MAIN}"')], [])
    samples = speedscope.parse_speedscope(raw, 42)
    assert [(thread.tid, thread.name) for thread in samples.threads] == [(42, MAIN), (0x7F1, "x")]


def test_what_was_read_in_freed_memory_is_no_line() -> None:
    read = [("main", "/t.py", 3), ("on_step", "logger", 2328059824), ("batch_size", "value", 0), ("", " ", 0)]
    read += [("inner", "<string>", 0), ("compiled", "cell", 7)]
    names = [{"name": name, "file": file, "line": line} for name, file, line in read]
    raw = scope([{"name": 'Thread 42 "MainThread"', "samples": [[0, 1], [0, 2], [0, 3], [0], [0, 4, 5]]}], names)
    (thread,) = speedscope.parse_speedscope(raw, 42).threads
    main = RawFrame("/t.py", 3, "main")
    assert thread.stacks == {(main,): 4, (main, RawFrame("<string>", 0, "inner"), RawFrame("cell", 7, "compiled")): 1}


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"\xff", b'{"profiles": [{"name": 1, "samples": []}], "shared": {}}']
)
def test_not_a_speedscope_file(raw: bytes) -> None:
    with pytest.raises(ValueError, match="speedscope"):
        speedscope.parse_speedscope(raw, 42)


GRAPH = "/v/lib/python3.11/site-packages/torch/autograd/graph.py"
ADAM = "/v/lib/python3.11/site-packages/torch/optim/adam.py"
#: ``B``: a sample in backward, ``U``: in an update, ``.``: elsewhere.
STACKS = {".": [0], "B": [0, 1], "U": [0, 2]}


@pytest.mark.parametrize(
    ("pattern", "entries"),
    [
        ("....BBBB....BBBB....", 2),
        ("BBBBBB......", 0),  # where it was entered nobody saw
        ("......", 0),
        (".....BBBBB", 1),
        ("..B..B..B", None),  # too far apart: more may lie between
        ("BBBBBB.BBBBBB.BBBBB", None),
        ("", None),
        ("....UUUU....UUUU....", 2),  # backward was too short to be seen
        ("....U...", None),
        ("....BBBUUUU....BBBUUUU....", 2),
    ],
)
def test_entries_into_backward_or_else_updates(pattern: str, entries: int | None) -> None:
    names = [
        {"name": "main", "file": "/t.py", "line": 1},
        {"name": "_engine_run_backward", "file": GRAPH, "line": 9},
        {"name": "step", "file": ADAM, "line": 9},
    ]
    profiles = [{"name": 'Thread 42 "MainThread"', "samples": [STACKS[mark] for mark in pattern]}]
    raw = json.dumps({"profiles": profiles, "shared": {"frames": names}}).encode()
    assert speedscope.parse_speedscope(raw, 42).cycles == entries


THREADS = """[{"thread_id": 7, "os_thread_id": 8, "thread_name": null, "active": true, "owns_gil": true, "frames": [
{"name": "Loader.read", "filename": "data.py", "line": 40}, {"name": "main", "filename": "train.py", "line": 5}]}]"""

#: A busy machine may take long to start even a shell.
PATIENT_S = 100.0


@pytest.mark.parametrize("times", [0, 1, 2, 99])
def test_a_torn_one_is_taken_three_times_at_most(tmp_path: Path, times: int) -> None:
    fails = (
        f"if [ $(wc -l < {tmp_path}/calls) -le {times} ]; then echo 'Error: Failed to get stack traces' >&2; exit 1; fi"
    )
    binary = fake_pyspy(tmp_path, f"echo >> {tmp_path}/calls\n{fails}\necho '{THREADS}'")
    if times < 3:
        (thread,) = pyspy.dump(binary, os.getpid(), PATIENT_S)
        assert (thread.tid, thread.stack) == (8, (RawFrame("train.py", 5, "main"), RawFrame("data.py", 40, "read")))
    else:
        with pytest.raises(pyspy.DumpError, match="Failed to get stack traces"):
            pyspy.dump(binary, os.getpid(), PATIENT_S)
    assert (tmp_path / "calls").read_text() == "\n" * min(times + 1, 3)
