"""States, nodes and GPUs in a few words."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.views.tui.gpu.rows import HOPPER, OLD, instance, number, replace
from tuimon.records import Node, Place
from tuimon.session.rows import GpuMeans
from tuimon.session.state import RunState
from tuimon.views.gpu_text import gpu_progress, gpu_text
from tuimon.views.state_text import nodes_text, state_text

PLACE = Place("/home/me/train.py", 26, "main", "evaluate(model)")


@pytest.mark.parametrize(
    ("for_s", "text"),
    [
        (None, "no step for 14s: in eval at main() train.py:26"),
        (0.04, "no step for 14s: in eval at main() train.py:26"),
        (0.05, "no step for 14s: in eval at main() train.py:26 for 0.1s"),
        (9.0, "no step for 14s: in eval at main() train.py:26 for 9.0s"),
        (13.9, "no step for 14s: in eval at main() train.py:26"),
    ],
)
def test_how_long_something_goes_on_is_told_once_it_has(for_s, text):
    assert state_text(RunState("between_steps", 14.0, "in eval", for_s, PLACE)) == text


def test_what_it_did_last_is_not_told_as_if_it_went_on():
    """The window in which it was mostly importing may hold its whole training."""
    state = RunState("ended", 11.0, "importing torch", 4.5, None)
    assert state_text(state) == "ended after 11s: mostly importing torch in its last 4.5s"


# -- the nodes of a run that are not well, in a few words


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


# -- the GPUs in a few words


BUSIER = (OLD, replace(OLD, uuid="x", util_ratio=0.97))


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ([HOPPER], "GPU 100 % · tensor 12 %"),
        ([OLD], "GPU 37 %"),
        (BUSIER, "2 GPUs 37–97 %"),
        (number(8), "8 GPUs 100 % · tensor 12 %"),
        ([HOPPER, *number(3, OLD, used_by_run=False)], "GPU 100 % · tensor 12 %"),
        ([replace(HOPPER, util_ratio=None), instance("1g.10gb", "MIG-a")], "GPU SM 71 % · tensor 12 %"),
        ([replace(HOPPER, means=GpuMeans(util_ratio=0.16, tensor_ratio=0.0))], "GPU 16 % · tensor 0 %"),
        ([replace(OLD, used_by_run=False)], None),
        ([replace(OLD, stale_s=12.0)], None),
        ([OLD, replace(OLD, uuid="x", stale_s=12.0)], "2 GPUs 37 %"),
        ([replace(OLD, util_ratio=None)], None),
        ([], None),
    ],
)
def test_in_the_title(gpus, text):
    assert gpu_text(gpus) == text


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ([HOPPER], "gpu 100% tensor 12%"),
        (BUSIER, "gpu 37% 97%"),
        ([replace(HOPPER, means=GpuMeans(util_ratio=0.16, tensor_ratio=0.0))], "gpu 16% tensor 0%"),
        ([instance("1g.10gb", "MIG-a")], "gpu SM 71% tensor 12%"),
        ([replace(OLD, used_by_run=False)], "gpu 37%"),
        ([HOPPER, replace(HOPPER, uuid="x", stale_s=12.0)], "gpu 100% – tensor 12%"),
        ([], None),
    ],
)
def test_headless(gpus, text):
    assert gpu_progress(gpus) == text
