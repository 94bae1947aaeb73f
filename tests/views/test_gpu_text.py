"""The GPUs in a few words."""

import pytest

from tests.views.tui.gpu.rows import HOPPER, OLD, instance, number, replace
from tuimon.session.counter_means import GpuMeans
from tuimon.views.gpu_text import gpu_progress, gpu_text, stale_after_s

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


@pytest.mark.parametrize(("count", "interval_s", "seconds"), [(1, 1.0, 8.0), (8, 1.0, 12.0), (1, 10.0, 30.0)])
def test_figures_are_old_after_three_windows(count, interval_s, seconds):
    assert stale_after_s(number(count), interval_s) == seconds
