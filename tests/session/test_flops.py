"""The operations of a traced step at the pace of all, against the peak of the GPU."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.session import records
from tests.session.records import one_process
from tests.views.streams import gpu
from tuimon.records import TracedFlops, TraceTaken
from tuimon.session.progress import flops_rate, run_progress
from tuimon.session.session import Session
from tuimon.views.words import flops_rate_text

TERA = 10**12
H100 = "NVIDIA H100 80GB HBM3"


def trace(*rows: TracedFlops, steps: int = 2, t: float = 20.0) -> TraceTaken:
    return TraceTaken(t=t, pid=100, begin_s=1.0, end_s=2.0, steps=steps, wanted=steps, file="t", flops=[*rows] or None)


def run(*traces: TraceTaken, name: str = H100, gpus: int = 1, parent: str | None = None, **facts: object) -> Session:
    """Ten steps a second."""
    return one_process(
        [structs.replace(gpu(1, index), name=name, parent_uuid=parent) for index in range(gpus)],
        records.loop(20, {"forward": 50, "backward": 50}),
        traces,
        gpu_uuids=[f"GPU-{index}" for index in range(gpus)],
        **facts,
    )


def mfu(session: Session) -> float | None:
    found = flops_rate(session, 100)
    return found.mfu_ratio if found is not None else None


HALF = TracedFlops("product", "bfloat16", 40 * TERA)  # of two steps: 200 TFLOPS at ten steps a second


def test_without_a_trace_nothing_is_known() -> None:
    assert flops_rate(run(), 100) is None
    assert flops_rate(run(trace()), 100) is None  # one in which they could not be counted
    assert run_progress(run(trace()), 100).flops_per_s is None


def test_a_share_of_the_dense_peak() -> None:
    known = run_progress(run(trace(HALF)), 100)
    assert known.flops_per_s == pytest.approx(200 * TERA)
    assert known.mfu_ratio == pytest.approx(200 / 989.5)
    assert flops_rate_text(known) == "20 % MFU"
    assert mfu(run(trace(HALF), gpus=2)) == pytest.approx(100 / 989.5)


def test_the_latest_trace_that_has_counts_is_the_one() -> None:
    later = trace(structs.replace(HALF, flops=20 * TERA), steps=4, t=21.0)
    assert mfu(run(trace(HALF), later, trace(t=22.0))) == pytest.approx(50 / 989.5)


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989.5),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA L40S", 362),
        ("NVIDIA A10G", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("Tesla T4", None),  # has none of bfloat16
    ],
)
def test_peaks_by_the_name_of_the_gpu(name: str, peak: float | None) -> None:
    found = mfu(run(trace(HALF), name=name))
    assert found == (None if peak is None else pytest.approx(200 / peak))


def test_a_part_of_a_gpu_and_a_gpu_that_is_not_known_have_no_peak() -> None:
    assert mfu(run(trace(HALF), parent="GPU-9")) is None
    assert mfu(run(trace(HALF), gpus=0)) is None
    assert flops_rate_text(run_progress(run(trace(HALF), gpus=0), 100)) == "200 TFLOPS"


def test_each_type_has_its_own_peak() -> None:
    """Single precision rounds to TF32 as torch's settings say, of cuDNN and of the rest."""
    rows = (TracedFlops("product", "float32", 10 * TERA), TracedFlops("convolution", "float32", 10 * TERA))
    assert mfu(run(trace(*rows), tf32=False, cudnn_tf32=True)) == pytest.approx(50 / 67 + 50 / 494.5)
    assert mfu(run(trace(*rows), tf32=True, cudnn_tf32=True)) == pytest.approx(100 / 494.5)
    assert mfu(run(trace(*rows), tf32=True)) is None
    assert mfu(run(trace(*rows), name="Tesla V100-SXM2-16GB")) == pytest.approx(100 / 15.7)
