"""The GPUs in a few words."""

import pytest

from tests.views.tui.gpu.rows import HOPPER, OLD, instance, number, replace
from tuimon.records import Cost
from tuimon.session.counter_means import GpuMeans
from tuimon.session.rows import StepSummary
from tuimon.session.trainings import Which
from tuimon.views.gpu_text import gpu_progress, gpu_text, stale_after_s
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.panes.title_line import RunFacts, title_line

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


def test_the_title_drops_it_before_the_step_time():
    facts = RunFacts("train.py", 4242, Which(), 192.0, None, None, None, paused=False, gpu=gpu_text([HOPPER]))
    assert "3m12s · GPU 100 % · tensor 12 %" in text_of(title_line(facts, 80))
    for width in (40, 60, 80):
        assert cells(title_line(facts, width)) == width


def test_our_own_cost_stays_in_the_title_beside_the_gpu():
    cost = Cost(t=1, pid=0, window_s=1, cpu_ratio=0.04, sampler_cpu_ratio=0, rss_bytes=62 << 20)
    steps = StepSummary(1000, 14.9, 67.0, 81.0, "data", 0.01, 0)
    facts = RunFacts("train.py", 4242, Which(), 192.0, steps, cost, None, paused=False, gpu=gpu_text([HOPPER]))
    row = text_of(title_line(facts, 120))
    assert row.startswith(" train.py · 3m12s · ") and " · GPU 100 %" in row
    assert row.endswith("  tuimon 4 %, 62 MiB ")


@pytest.mark.parametrize(("count", "interval_s", "seconds"), [(1, 1.0, 8.0), (8, 1.0, 12.0), (1, 10.0, 30.0)])
def test_figures_are_old_after_three_windows(count, interval_s, seconds):
    assert stale_after_s(number(count), interval_s) == seconds
