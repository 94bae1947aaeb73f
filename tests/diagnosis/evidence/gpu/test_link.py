"""What copies of pinned memory reach over a PCIe link."""

import pytest

from tuimon.diagnosis.evidence.gpu.link import pcie_bytes_per_s


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
