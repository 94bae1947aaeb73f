"""Waiting for the GPU: rules on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import END_S, FLOAT, FORWARD, ITEM, SCALER, STEP, USUAL, findings
from tests.gpu_simulator.training import PID
from tests.session.records import frames, stacks
from tuimon.diagnosis.evidence.gpu import calls_at
from tuimon.diagnosis.rules.gpu.waits import advice_for
from tuimon.records import LineCalls, Place, StepCalls, TracedSync, TraceTaken


@pytest.mark.parametrize("line", [FLOAT, ITEM])
def test_values_read_in_other_words(line):
    assert findings("sync_item", *USUAL, ([line], 60))["sync_point"].where[0].line == {FLOAT: 46, ITEM: 45}[line]


def test_the_scalers_own_synchronisation_is_at_the_line_that_steps():
    assert findings("sync_item", *USUAL, ([STEP, SCALER], 60))["sync_point"].where[0].line == 44


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("torch.cuda.synchronize()", "leave out torch.cuda.synchronize() at main() train.py:9"),
        ("scaler.step(optimizer)", "bfloat16"),
        ("boxes = scores.nonzero()", "replace scores.nonzero() at main() train.py:9: a mask of the same size"),
        ("loss = step(model)", "keep the value on the GPU at main() train.py:9"),
    ],
)
def test_the_advice_replaces_the_very_call(source, advice):
    place = Place("train.py", 9, "main", source)
    assert advice in advice_for(place, calls_at(place))


def test_a_boolean_index_is_a_synchronisation():
    masked = frames(("/home/me/train.py", 8, "masked", "return errors[mask].mean()", True), first=30)
    more = [masked, stacks(END_S, ([FORWARD, 30], 60))]
    sync = findings("sync_item", *USUAL, more=more)["sync_point"]
    assert (sync.where[0].function, sync.where[0].line) == ("masked", 8)
    assert sync.headline.startswith("errors[mask] blocks the CPU ")


def test_an_index_by_positions_is_none():
    chosen = frames(("/home/me/train.py", 8, "chosen", "return errors[idx].mean()", True), first=30)
    assert "sync_point" not in findings("sync_item", *USUAL, more=[chosen, stacks(END_S, ([FORWARD, 30], 60))])


def traced(*rows, pid=PID, steps=5, step_ms=20.0):
    begin_s = END_S - 1.0
    syncs = [TracedSync("cudaStreamSynchronize", "aten::nonzero", "forward", *row) for row in rows]
    end_s = begin_s + steps * step_ms / 1e3
    return TraceTaken(
        t=END_S, pid=pid, begin_s=begin_s, end_s=end_s, steps=steps, wanted=steps, file="t.gz", syncs=syncs
    )


@pytest.mark.parametrize(("kind", "util", "severity"), [("sync_item", 0.9, "info"), ("gpu_bound", 0.99, "benign")])
def test_a_trace_counts_the_waits_at_the_line(kind, util, severity):
    trace = traced(
        ("main() train.py:45", 80, 20_000_000), ("main() train.py:45", 5, 1_000_000), ("main() train.py:4", 9, 9)
    )
    found = findings(kind, ([ITEM], 90), *USUAL[:2], more=[traced(("main() train.py:45", 5, 5)), trace], util=util)
    evidence = found["sync_point"].evidence
    assert found["sync_point"].severity == severity
    assert (evidence["waits_per_step"], evidence["waited_ms_per_step"]) == (17.0, 4.2)


@pytest.mark.parametrize(
    "more", [(), [traced(("main() train.py:44", 5, 5))], [traced(("main() train.py:45", 5, 5), pid=PID + 1)]]
)
def test_without_a_trace_of_the_line_nothing_is_known_of_it(more):
    sync = findings("sync_item", *USUAL, ([ITEM], 60), more=more)["sync_point"]
    assert not {"waits_per_step", "waited_ms_per_step"} & sync.evidence.keys()


def counted(*lines, pid=PID):
    return StepCalls(t=END_S, pid=pid, lines=[LineCalls(*each) for each in lines])


@pytest.mark.parametrize(("kind", "util", "further"), [
    ("sync_item", 0.9, ["collect the values and convert them once a step"]), ("gpu_bound", 0.99, [])
])  # fmt: skip
def test_a_line_that_each_step_runs_repeatedly_says_how_often(kind, util, further):
    read, other = ("item", "/home/me/train.py", 45, 40), ("item", "/home/me/other.py", 45, 90)
    plain, repeated = (
        findings(kind, ([ITEM], 90), *USUAL[:2], more=more, util=util)["sync_point"]
        for more in ([], [counted(read, other)])
    )
    assert repeated.headline == plain.headline.replace("loss.item()", "loss.item(), 40 times a step,")
    assert repeated.evidence == {**plain.evidence, "item_calls_per_step": 40}
    assert repeated.fixes[: len(plain.fixes)] == plain.fixes
    assert [fix.action for fix in repeated.fixes[len(plain.fixes) :]] == further


@pytest.mark.parametrize(
    "more",
    [
        counted(("item", "/home/me/train.py", 45, 1)),
        counted(("item", "/home/me/train.py", 44, 40)),
        counted(("item", "/home/me/train.py", 45, 40), pid=PID + 1),
    ],
)
def test_without_a_repeated_call_of_the_line_nothing_is_said_of_it(more):
    sync = findings("sync_item", *USUAL, ([ITEM], 60), more=[more])["sync_point"]
    assert sync.headline.startswith("loss.item() ") and "item_calls_per_step" not in sync.evidence


def test_waits_in_so_many_words_need_no_advice_of_how_to_join_them():
    waits = counted(("synchronize", "/home/me/train.py", 45, 3))
    sync = findings("sync_item", *USUAL, ([ITEM], 60), more=[waits])["sync_point"]
    assert sync.evidence["synchronize_calls_per_step"] == 3
    assert len(sync.fixes) == 1
