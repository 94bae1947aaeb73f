"""Steps a second from the order of samples: literal windows, and a real loop with slow steps."""

from __future__ import annotations

import json

import pytest

from tuimon.sources.stacks.pyspy import output

GRAPH = "/v/lib/python3.11/site-packages/torch/autograd/graph.py"
ADAM = "/v/lib/python3.11/site-packages/torch/optim/adam.py"
STACKS = {".": [0], "B": [0, 1], "U": [0, 2]}


def cycles(pattern: str, other: str = "") -> int | None:
    """``B``: a sample in backward, ``U``: in an update, ``.``: elsewhere; ``other``: of another thread."""
    return window(pattern, other).cycles


def window(pattern: str, other: str) -> output.WindowSamples:
    names = [
        {"name": "main", "file": "/t.py", "line": 1},
        {"name": "_engine_run_backward", "file": GRAPH, "line": 9},
        {"name": "step", "file": ADAM, "line": 9},
    ]
    profiles = [
        {"name": name, "samples": [STACKS[mark] for mark in marks]}
        for name, marks in (('Thread 42 "MainThread"', pattern), ('Thread 43 "trainer"', other))
        if marks or name.startswith("Thread 42")
    ]
    raw = json.dumps({"profiles": profiles, "shared": {"frames": names}}).encode()
    return output.parse_speedscope(raw, 42)


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
    assert cycles(pattern) == entries
