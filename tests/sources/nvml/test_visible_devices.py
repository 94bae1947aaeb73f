"""CUDA_VISIBLE_DEVICES: which GPUs it names."""

from __future__ import annotations

import pytest

from tuimon.sources.gpus.visible_devices import VisibleGpu, named

A, B, C = "GPU-8a1e7c00-0001", "GPU-8a1e7c00-0002", "GPU-5bd00000-0003"
ALIKE = [VisibleGpu(A, "X"), VisibleGpu(B, "X"), VisibleGpu(C, "X", ("MIG-11", "MIG-12"))]
MIXED = [VisibleGpu(A, "X"), VisibleGpu(B, "Y"), VisibleGpu(C, "X")]


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        (None, []),
        ("", []),
        ("0", [A]),
        ("2, 0", [C, A]),
        ("1,-1,0", [B]),  # CUDA stops at the first bad entry
        ("0,9,1", [A]),
        ("none", []),
        (B, [B]),
        ("GPU-5bd", [C]),
        ("GPU-8a1e", []),  # two begin so
        ("gpu-5bd", []),
        ("MIG-12,MIG-11", ["MIG-12", "MIG-11"]),
        ("MIG-1", []),
        (f"MIG-{C}/1/0", [C]),
        ("8a1e7c00-0001", []),
    ],
)
def test_of_like_gpus(variable: str | None, found: list[str]) -> None:
    assert named(variable, None, ALIKE) == found


def test_numbers_of_unlike_gpus_tell_something_only_in_pci_order() -> None:
    assert named("1,2", None, MIXED) == []
    assert named("1,2", "FASTEST_FIRST", MIXED) == []
    assert named("1,2", "PCI_BUS_ID", MIXED) == [B, C]
    assert named(C, None, MIXED) == [C]
