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
from tests.gpu_simulator.sessions import records
from tests.session.records import frames, stacks
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.rules.gpu.sync import _advice, _calls, _Wait
from tuimon.records import Place

END_S = max(record.t for record in records("sync_item", 20.0))


def test_an_item_that_lets_the_gpu_run_dry():
    found = findings("sync_item", *USUAL, ([ITEM], 60), util=0.95, cpu=0.99)
    sync = found["sync_point"]
    assert (sync.severity, sync.where[0].line) == ("info", 45)  # less than 5 % for certain
    low, high = sync.speedup_at_least, sync.evidence["speedup_at_most"]
    # what the GPU idles, though the CPU waits there for 43 % of the time
    assert 1.0 <= low <= sync.estimated_speedup <= high < 1.1
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
        ("torch.cuda.synchronize()", "torch.cuda.synchronize() at main() train.py:9: leave it out"),
        ("scaler.step(optimizer)", "bfloat16"),
        ("boxes = scores.nonzero()", "instead of scores.nonzero() at main() train.py:9: a mask of the same size"),
        ("total += loss.item()", "loss.detach()"),
        ("loss = errors[mask].mean()", "torch.where(mask, errors, 0).sum() / mask.sum()"),
        ("loss = step(model)", "keep the value on the GPU at main() train.py:9"),
    ],
)
def test_the_advice_replaces_the_very_call(source, advice):
    hot = HotFunction(Place("train.py", 9, "main", source), 1.0, 10)
    assert advice in _advice(_Wait(hot, 0.5, by_transfer=False), _calls(hot))


def test_a_boolean_index_is_a_synchronisation():
    masked = frames(("/home/me/train.py", 8, "masked", "return errors[mask].mean()", True), first=30)
    more = [masked, stacks(END_S, ([FORWARD, 30], 60))]
    sync = findings("sync_item", *USUAL, more=more)["sync_point"]
    assert (sync.where[0].function, sync.where[0].line) == ("masked", 8)
    assert sync.headline.startswith("masked() train.py:8 (errors[mask]) waits for")


def test_an_index_by_positions_is_none():
    chosen = frames(("/home/me/train.py", 8, "chosen", "return errors[idx].mean()", True), first=30)
    assert "sync_point" not in findings("sync_item", *USUAL, more=[chosen, stacks(END_S, ([FORWARD, 30], 60))])


def test_a_wait_for_a_gpu_that_is_nearly_always_busy_is_no_warning():
    """As where each layer asks for a maximum: 72 % of the time is waiting, and 93 % of it the GPU works."""
    found = findings("sync_item", *USUAL, ([ITEM], 200), util=0.90, cpu=0.99)
    sync = found["sync_point"]
    assert sync.severity in ("info", "benign")
    assert "waits for a busy GPU" in sync.headline
    assert "100 % CPU there is that wait" in sync.headline
    assert 1.0 <= sync.speedup_at_least <= sync.estimated_speedup <= sync.fixes[0].high < 1.15
