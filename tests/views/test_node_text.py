"""The nodes of a run that are not well, in a few words."""

from __future__ import annotations

from typing import Literal

from tuimon.records import Node
from tuimon.views.state_text import nodes_text


def node(
    number: int,
    state: Literal["writing", "late", "stopped", "ended"] = "writing",
    behind_s: float = 0.0,
    exit_code: int | None = None,
) -> Node:
    host = f"n{number}"
    return Node(
        t=1.0, pid=0, number=number, host=host, cpu_count=8, state=state, behind_s=behind_s, exit_code=exit_code
    )


def test_a_node_that_writes_nothing_is_named_and_several_are_counted() -> None:
    assert nodes_text([node(0), node(7, "late", 28.0)]) == "n7 silent for 28s"
    assert nodes_text([node(0), node(7, "late", 28.0), node(8, "stopped", 90.0)]) == "2 of 3 nodes silent for 1m30s"


def test_a_node_that_failed_while_others_go_on_is_said_to_have() -> None:
    assert nodes_text([node(0), node(1, "ended", exit_code=1)]) == "n1 failed"
    assert nodes_text([node(0), node(1, "ended", exit_code=1), node(2, "late", 20.0)]) == "n2 silent for 20s, n1 failed"
    assert nodes_text([node(0, "ended", exit_code=1), node(1, "ended", exit_code=1)]) is None
