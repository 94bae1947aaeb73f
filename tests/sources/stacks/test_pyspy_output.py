"""Speedscope files as py-spy writes them; on literal text."""

from __future__ import annotations

import json

import pytest

from tuimon.sources.stacks.frames.frame_ids import RawFrame
from tuimon.sources.stacks.pyspy import output


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
    samples = output.parse_speedscope(raw, 42)
    assert samples.instants == 3
    assert [(t.tid, t.name) for t in samples.threads] == [(42, "MainThread"), (43, 'a "quoted"\nname'), (44, "")]
    main, inner = RawFrame("/t.py", 3, "main"), RawFrame("/t.py", 0, "inner")
    assert samples.threads[0].stacks == {(main, inner): 2, (main,): 1}
    assert samples.threads[2].stacks == {(): 2}  # a frame that is not in the table is left out


def test_what_was_read_in_freed_memory_is_no_line() -> None:
    read = [("main", "/t.py", 3), ("on_step", "logger", 2328059824), ("batch_size", "value", 0), ("", " ", 0)]
    read += [("inner", "<string>", 0), ("compiled", "cell", 7)]
    names = [{"name": name, "file": file, "line": line} for name, file, line in read]
    raw = scope([{"name": 'Thread 42 "MainThread"', "samples": [[0, 1], [0, 2], [0, 3], [0], [0, 4, 5]]}], names)
    (thread,) = output.parse_speedscope(raw, 42).threads
    main = RawFrame("/t.py", 3, "main")
    assert thread.stacks == {(main,): 4, (main, RawFrame("<string>", 0, "inner"), RawFrame("cell", 7, "compiled")): 1}


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"\xff", b'{"profiles": [{"name": 1, "samples": []}], "shared": {}}']
)
def test_not_a_speedscope_file(raw: bytes) -> None:
    with pytest.raises(ValueError, match="speedscope"):
        output.parse_speedscope(raw, 42)
