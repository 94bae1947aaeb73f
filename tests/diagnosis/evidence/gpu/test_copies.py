"""How long copies take at most, where no memory is pinned."""

from __future__ import annotations

import pytest

from tests.diagnosis.gpu import BACKWARD, FORWARD, IN_BACKWARD, IN_STEP, LINES, MODULE, PID, SAVE, STEP, TO_DEVICE
from tests.session.records import frames, process, session_of, stacks, steps
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.evidence.gpu.samples import (
    SLOW_COPY,
    bytes_per_step,
    copying_by_bytes,
    copying_upper_bound,
    pcie_bytes_per_s,
)
from tuimon.records import Frames, Loader, LoaderFacts, MeasuredBatches, TorchMemory
from tuimon.session.rows import LoaderRow

MORE = frames(
    ("/lib/site-packages/torch/nn/modules/conv.py", 549, "Conv2d._conv_forward"),
    ("/home/me/model.py", 20, "forward", "h = h.to(self.second)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 1300, "Module.to.<locals>.convert"),
    first=len(LINES.frames),
)
CONVOLUTION, IN_MODEL, CONVERT = range(len(LINES.frames), len(LINES.frames) + 3)
COMPUTES = (
    ([FORWARD, MODULE], 300),
    ([BACKWARD, IN_BACKWARD], 500),
    ([STEP, IN_STEP], 100),
    ([FORWARD, CONVOLUTION], 60),
)


def at_most(*counted, pinned=0):
    memory = TorchMemory(t=1.0, pid=PID, device=0, allocated_bytes=1, reserved_bytes=2, pinned_bytes=pinned)
    lines = Frames(t=1.0, pid=PID, first=MORE.first, frames=MORE.frames)
    window = steps(1.0, {"forward": 50, "backward": 50}, pid=PID)
    session = session_of(process(PID), LINES, lines, window, memory, stacks(1.0, *counted, pid=PID))
    evidence = evidence_of(session.over("recent"), PID)
    return copying_upper_bound(evidence.samples, evidence.torch_memory)


def test_layers_backward_and_updates_copy_nothing():
    assert at_most(*COMPUTES) < 0.005


@pytest.mark.parametrize("line", [TO_DEVICE, SAVE, FORWARD])
def test_every_other_line_may_copy(line):
    found = at_most(*COMPUTES[:2], ([line], 200))
    assert 0.2 < found < 0.24


def test_what_the_model_copies_may_come_back_in_backward():
    outside, inside = (at_most(*COMPUTES[:2], (where, 200)) for where in ([IN_MODEL], [FORWARD, MODULE, IN_MODEL]))
    assert inside == pytest.approx(2 * outside, rel=0.05)


def test_moving_a_model_is_a_copy():
    assert at_most(*COMPUTES[:2], ([FORWARD, CONVERT], 200)) > 0.2


def test_nobody_waits_for_copies_of_pinned_memory():
    assert at_most(*COMPUTES, pinned=64 << 20) is None
    assert at_most(*COMPUTES, pinned=None) is None
    assert at_most(*COMPUTES, pinned=512) == at_most(*COMPUTES)


def test_too_few_samples():
    assert at_most(([FORWARD, MODULE], 20)) is None


def loader_row(count=2, mean_bytes=1 << 20, on_cpu=2, fetches_per_s=100.0, batches=True):
    facts = LoaderFacts("Photos", "map", 4, pin_memory=True)
    measured = MeasuredBatches(count, count * mean_bytes, None, on_cpu, count) if batches else None
    latest = Loader(t=1.0, pid=PID, window_s=1.0, number=0, fetches=100)
    values = dict.fromkeys(LoaderRow._fields)
    return LoaderRow(**values | {"latest": latest, "facts": facts, "fetches_per_s": fetches_per_s, "batches": measured})


def test_bytes_of_batches_bound_what_copies_take_also_from_pinned_memory():
    assert copying_by_bytes(loader_row()) == pytest.approx(100 * (1 << 20) / SLOW_COPY)
    assert copying_by_bytes(loader_row(mean_bytes=1 << 30)) == 1.0


@pytest.mark.parametrize("row", [None, loader_row(batches=False), loader_row(on_cpu=0), loader_row(fetches_per_s=None)])
def test_bytes_that_are_not_known_bound_nothing(row):
    assert copying_by_bytes(row) is None
    assert bytes_per_step(row, None) is None


def test_bytes_of_a_step_are_those_of_all_its_fetches():
    """Two fetches of 1 MiB in each step of 20 ms."""
    assert bytes_per_step(loader_row(), 20.0) == pytest.approx(2 << 20)


@pytest.mark.parametrize(
    ("generation", "width", "gb_per_s"),
    [
        (1, 16, 3.2),
        (2, 16, 6.4),
        (3, 16, 12.6),
        (4, 16, 25.2),
        (5, 16, 50.4),
        (6, 16, 96.8),
        (4, 8, 12.6),
        (3, 1, 0.79),
    ],
)
def test_the_rate_of_pinned_copies_follows_from_generation_and_lanes(generation, width, gb_per_s):
    assert pcie_bytes_per_s(generation, width) == pytest.approx(gb_per_s * 1e9, rel=0.005)


@pytest.mark.parametrize(("generation", "width"), [(None, 16), (5, None), (None, None), (0, 16), (9, 16), (5, 0)])
def test_nothing_is_known_of_an_unknown_link(generation, width):
    assert pcie_bytes_per_s(generation, width) is None
