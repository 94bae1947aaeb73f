"""How fast a GPU's PCIe link is for copies between pinned memory and the GPU."""

from __future__ import annotations

from tuimon.diagnosis.threshold import Threshold

PINNED_RATIO = Threshold(
    0.8,
    "share of a PCIe link's rate that copies of tens of MB between pinned memory and the GPU reach",
    "measured on an H100 over 16 lanes: 50 of 63 GB/s with PCIe 5; published: 12.2 of 15.75 with PCIe 3 (P100:"
    " https://github.com/mpicbg-scicomp/gearshifft/pull/82), 25.1 of 31.5 with PCIe 4 (A100:"
    " https://github.com/NVIDIA/nvbandwidth/issues/42)",
)
#: Bytes a second of one lane in one direction, by generation, without the line code (8b/10b, from 3 on 128b/130b, in 6
#: 14 of 256 bytes): https://en.wikipedia.org/wiki/PCI_Express#Comparison_table
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}


def pcie_bytes_per_s(generation: int | None, width: int | None) -> float | None:
    """Bytes a second that copies of pinned memory reach over a link of ``width`` lanes; None where either is unknown.

    PCIe 5 with 16 lanes: 3.938 GB/s x 16 x 0.8 = 50 GB/s. A superchip such as GH200 copies over NVLink-C2C, at more
    than 300 GB/s: https://github.com/NVIDIA/nvbandwidth/issues/23
    """
    lane = None if generation is None else _LANE_BYTES_PER_S.get(generation)
    return lane * width * PINNED_RATIO if lane is not None and width else None
