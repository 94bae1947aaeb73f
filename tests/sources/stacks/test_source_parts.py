"""What StackSource reads: py-spy's files, frames, errors; on literal inputs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tuimon.records import Frame
from tuimon.sources.stacks import pyspy_errors, pyspy_output
from tuimon.sources.stacks.frame_ids import FrameIds, RawFrame

CALL = RawFrame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1786, "_call_impl")


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
    samples = pyspy_output.parse_speedscope(raw, 42)
    assert samples.instants == 3
    assert [(t.tid, t.name) for t in samples.threads] == [(42, "MainThread"), (43, 'a "quoted"\nname'), (44, "")]
    main, inner = RawFrame("/t.py", 3, "main"), RawFrame("/t.py", 0, "inner")
    assert samples.threads[0].stacks == {(main, inner): 2, (main,): 1}
    assert samples.threads[2].stacks == {(): 2}  # a frame that is not in the table is left out


def test_threads_of_older_pythons_have_no_os_id() -> None:
    raw = scope(
        [{"name": 'Thread 0x7F01 "MainThread"', "samples": [[]]}, {"name": 'Thread 0x7F02 "t"', "samples": [[]]}], []
    )
    assert [thread.tid for thread in pyspy_output.parse_speedscope(raw, 42).threads] == [42, 0x7F02]


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"\xff", b'{"profiles": [{"name": 1, "samples": []}], "shared": {}}']
)
def test_not_a_speedscope_file(raw: bytes) -> None:
    with pytest.raises(ValueError, match="speedscope"):
        pyspy_output.parse_speedscope(raw, 42)


def test_frames_are_numbered_once_and_bounded(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("first\nsecond\n")
    ids = FrameIds(limit=3)
    here = str(script)
    assert ids.id_of(RawFrame(here, 2, "f")) == 0
    assert ids.id_of(CALL) == 1
    assert ids.id_of(RawFrame(here, 2, "f")) == 0
    assert ids.pop_new_frames() == (
        0,
        [Frame(here, 2, "f", "second", True), Frame(CALL.file, CALL.line, CALL.function)],
    )
    assert ids.pop_new_frames() == (2, [])
    assert [ids.id_of(RawFrame(here, line, "f")) for line in (1, 8, 9, 1, 8)] == [2, 3, 3, 2, 3]
    first, fresh = ids.pop_new_frames()
    assert (first, [frame.function for frame in fresh]) == (2, ["f", "(more frames)"])
    assert ids.id_of(RawFrame(here, 10, "f")) == 3
    assert ids.pop_new_frames() == (4, [])


def test_what_pyspy_says_becomes_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"
    me = os.getpid()
    monkeypatch.setattr(pyspy_errors, "in_container", lambda: True)
    assert "--cap-add SYS_PTRACE" in (pyspy_errors.explain(denied, me).hint or "")
    monkeypatch.setattr(pyspy_errors, "in_container", lambda: False)
    for scope_now, word in (
        (1, "kernel.yama.ptrace_scope=0"),
        (2, "sudo"),
        (3, "reboot"),
        (0, "seccomp"),
        (None, "seccomp"),
    ):
        monkeypatch.setattr(pyspy_errors, "yama_scope", lambda scope_now=scope_now: scope_now)
        assert word in (pyspy_errors.explain(denied, me).hint or "")
    unsupported = pyspy_errors.explain("Error: Unsupported version of Python: 3.99.0\n\nStack backtrace:\n  0: x", me)
    assert unsupported.message == "no stack samples: py-spy does not know Python 3.99.0"
    early = pyspy_errors.explain("Error: Failed to find python version from target process", me)
    assert early.passing
    other = pyspy_errors.explain("Error: \x1b[31mSomething else\n\nStack backtrace:\n   0: foo", me)
    assert other.message == f"no stack samples of process {me}: Something else"
    assert "py-spy said nothing" in pyspy_errors.explain("", me).message
    assert pyspy_errors.explain("Error: Failed to find a python interpreter in the .data section", me).passing


def test_pyspys_environment_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuimon.sources.stacks import pyspy

    monkeypatch.setenv("RUST_BACKTRACE", "full")
    monkeypatch.setenv("RUST_LOG", "debug")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    env = pyspy.environment()
    assert not [name for name in env if name.startswith("RUST_")]
    assert env["LC_ALL"] == "C"
    assert env["PATH"] == os.environ["PATH"]
