"""The call tree as boxes of an icicle graph: one row a depth, width is the share of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.session.loop_tree.tree import CallTree, Node, call_tree
from tuimon.session.samples.process_samples import ProcessSamples
from tuimon.session.session import SessionView
from tuimon.views.format import count, percent, place

_LEAST_SHARE = 0.004
_WIDE_SHARE = 0.04
_DEPTH = 32
_BOXES = 1500


class Box(NamedTuple):
    """One function; ``left`` and ``width`` as shares (0..1) of all samples, ``row`` from 0."""

    row: int
    left: float
    width: float
    label: str
    title: str
    is_wide: bool  # so that its label fits, and it can be reached by the keyboard
    phase: str
    user: bool


def trees(run: SessionView, pid: int) -> list[tuple[str, CallTree]]:
    """The call trees of a process's training thread and of its DataLoader workers together, each with its title.

    Without samples there is no tree.
    """
    workers = [worker.pid for worker in run.workers(pid)]
    found = (
        ("What the training thread does", _tree(run, [pid])),
        ("What the DataLoader workers do", _tree(run, workers)),
    )
    return [(title, tree) for title, tree in found if tree.samples]


def _tree(run: SessionView, pids: Sequence[int]) -> CallTree:
    sampled = [found for pid in pids if (found := run.process_samples(pid)) is not None]
    return call_tree(one for each in sampled for one in each.samples_of(_sampled_tid(each)))


def boxes_of(tree: CallTree) -> list[Box]:
    """The boxes that are wide enough to see, parents first."""
    boxes: list[Box] = []
    waiting = [(tree.root, 0.0)]
    while waiting and len(boxes) < _BOXES:
        parent, left = waiting.pop(0)
        for node in parent.ordered():
            share = tree.share(node.total)
            if share >= _LEAST_SHARE and node.depth <= _DEPTH:
                boxes.append(_box(node, left, share))
                waiting.append((node, left))
            left += share
    return boxes


def _box(node: Node, left: float, share: float) -> Box:
    at = node.place()
    title = f"{node.function} ({place(at.file, at.line)}): {percent(share)}, {count(node.total)} samples"
    label, is_wide = f"{node.function} {percent(share)}", share >= _WIDE_SHARE
    return Box(node.depth - 1, left, share, label, title, is_wide, node.phase() or "other", node.user)


def _sampled_tid(sampled: ProcessSamples) -> int:
    return next(iter(sampled.tids()), sampled.tid)
