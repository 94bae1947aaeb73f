"""How long copies take at most, where no memory is pinned."""

from __future__ import annotations

import pytest

from tests.diagnosis.gpu import LINES, PID
from tuimon.diagnosis.rules.gpu.copy import bytes_per_step, pcie_bytes_per_s
from tuimon.records import Loader, LoaderFacts, MeasuredBatches
from tuimon.session.loaders import LoaderRow

CONVOLUTION, IN_MODEL, CONVERT = range(len(LINES.frames), len(LINES.frames) + 3)


def loader_row(count=2, mean_bytes=1 << 20, on_cpu=2, fetches_per_s=100.0, batches=True):
    facts = LoaderFacts("Photos", "map", 4, pin_memory=True)
    measured = MeasuredBatches(count, count * mean_bytes, None, on_cpu, count) if batches else None
    latest = Loader(t=1.0, pid=PID, window_s=1.0, number=0, fetches=100)
    values = dict.fromkeys(LoaderRow._fields)
    return LoaderRow(**values | {"latest": latest, "facts": facts, "fetches_per_s": fetches_per_s, "batches": measured})


@pytest.mark.parametrize("row", [None, loader_row(batches=False), loader_row(on_cpu=0), loader_row(fetches_per_s=None)])
def test_bytes_that_are_not_measured_are_unknown(row):
    assert bytes_per_step(row, 20.0) is None


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
