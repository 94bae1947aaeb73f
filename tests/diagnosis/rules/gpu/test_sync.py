"""Waiting for the GPU: rules on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import (
    BACKWARD,
    EVAL_FETCH,
    EVAL_ITEM,
    EVAL_MODEL,
    EVALUATE,
    FLOAT,
    FORWARD,
    IN_BACKWARD,
    IN_FETCH,
    ITEM,
    MODULE,
    SCALER,
    STEP,
    USUAL,
    findings,
)
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.rules.gpu.sync import _advice
from tuimon.records import Place


def test_an_item_that_lets_the_gpu_run_dry():
    found = findings("sync_item", *USUAL, ([ITEM], 60), util=0.95, cpu=0.99)
    sync = found["sync_point"]
    assert (sync.severity, sync.where[0].line) == ("info", 45)  # less than 5 % for certain
    low, high = sync.speedup_at_least, sync.evidence["speedup_at_most"]
    # what the GPU idles, though the CPU waits there for 43 % of the time
    assert 1.0 < low <= sync.estimated_speedup <= high < 1.1
    unseen = findings("sync_item", *USUAL, ([ITEM], 60), cpu=0.99)["sync_point"]  # without NVML
    assert low == unseen.speedup_at_least
    assert high < unseen.evidence["speedup_at_most"] < 1 / 0.43
    assert next(iter(found)) == "compute_bound"  # so that this is the verdict


def test_values_that_evaluation_reads_are_no_waits_of_the_step():
    evaluation = (
        ([EVALUATE, EVAL_FETCH, IN_FETCH], 10),
        ([EVALUATE, EVAL_MODEL, MODULE], 40),
        ([EVALUATE, EVAL_ITEM], 90),
    )
    sync = findings("sync_item", *USUAL, ([ITEM], 60))["sync_point"]
    beside = findings("sync_item", *USUAL, ([ITEM], 60), *evaluation)["sync_point"]
    assert (beside.where[0].line, beside.evidence["waiting_share"]) == (45, sync.evidence["waiting_share"])


@pytest.mark.parametrize("line", [FLOAT, ITEM])
def test_values_read_in_other_words(line):
    assert findings("sync_item", *USUAL, ([line], 60))["sync_point"].where[0].line == {FLOAT: 46, ITEM: 45}[line]


def test_the_scalers_own_synchronisation_is_at_the_line_that_steps():
    assert findings("sync_item", *USUAL, ([STEP, SCALER], 60))["sync_point"].where[0].line == 44


def test_an_item_costs_nothing_where_the_gpu_is_the_bottleneck():
    found = findings("gpu_bound", ([ITEM], 90), *USUAL[:2], util=0.99, cpu=0.98)
    assert found["sync_point"].severity == "benign"
    assert found["sync_point"].headline == (
        "main() train.py:45 costs nothing here: it waits for the GPU, which is the bottleneck anyway"
    )
    assert found["spin_wait"].headline.startswith("98 % CPU at main() train.py:45 is CUDA polling")


def test_a_loop_without_synchronisation_has_none():
    assert "sync_point" not in findings("sync_item", *USUAL)
    assert "sync_point" not in findings("sync_item")


def test_full_cpu_in_backward_is_harmless_on_a_busy_gpu():
    found = findings("queue_full", ([BACKWARD, IN_BACKWARD], 90), *USUAL, util=0.99, cpu=0.4, autograd=0.6)
    assert "in backward() (its own thread)" in found["spin_wait"].headline
    assert found["spin_wait"].severity == "benign"


@pytest.mark.parametrize("cpu", [None, 0.5])
def test_no_spinning_without_a_busy_thread(cpu):
    assert "spin_wait" not in findings("queue_full", *USUAL, util=0.99, cpu=cpu)


def test_a_busy_thread_beside_an_idle_gpu_is_not_called_harmless():
    assert "spin_wait" not in findings("launch_bound", *USUAL, util=0.3, cpu=1.0)


@pytest.mark.parametrize("stack", [[FORWARD, MODULE], [STEP]])
def test_launching_is_no_waiting(stack):
    assert "sync_point" not in findings("sync_item", (stack, 90))


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("torch.cuda.synchronize()", "leave out torch.cuda.synchronize()"),
        ("scaler.step(optimizer)", "bfloat16 needs no scaler"),
        ("boxes = scores.nonzero()", "torch.where"),
        ("total += loss.item()", "loss.detach()"),
    ],
)
def test_the_advice_fits_the_line(source, advice):
    assert advice in _advice(HotFunction(Place("train.py", 9, "main", source), 1.0, 10), by_transfer=False)
