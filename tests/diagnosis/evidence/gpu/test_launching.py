"""What samples show of how a loop launches: cells one by one, compiled calls, tensor by tensor, whose loop it is."""

from __future__ import annotations

import pytest

from tests.session.records import frames, process, session_of, stacks, steps
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.evidence.gpu.samples import Launching
from tuimon.records import Frame

TORCH = "/lib/site-packages/torch"
LIB = "/lib/site-packages"
LINES = frames(
    ("/me/train.py", 40, "main", "loss = model(x)", True),
    (f"{TORCH}/nn/modules/module.py", 99, "_call_impl"),
    ("/me/train.py", 41, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("/me/train.py", 42, "main", "optimizer.step()", True),
    (f"{TORCH}/optim/adam.py", 9, "step"),  # 5
    (f"{TORCH}/optim/adam.py", 400, "_single_tensor_adam"),
    (f"{TORCH}/optim/adam.py", 700, "_multi_tensor_adam"),
    (f"{TORCH}/nn/modules/rnn.py", 1767, "forward"),
    (f"{TORCH}/_dynamo/eval_frame.py", 1024, "compile_wrapper"),
    (f"{TORCH}/_dynamo/eval_frame.py", 850, "_fn"),  # 10
    (f"{TORCH}/cuda/graphs.py", 90, "replay"),
    (f"{TORCH}/amp/grad_scaler.py", 478, "step"),
    (f"{LIB}/transformers/trainer.py", 2000, "_inner_training_loop"),
    (f"{LIB}/lightning/pytorch/loops/fit_loop.py", 200, "advance"),
)
STEP, LOOP = 4, 20
FORWARD, BACKWARD, UPDATE = ([0, 1], 40), ([2, 3], 40), ([STEP, 5, 7], 20)


def in_loop(source: str, line: int = 16, file: str = "/me/model.py", function: str = "forward") -> Frame:
    return Frame(file, line, function, source, True, loop=True)


def shown(*counted: tuple[list[int], int], looped: Frame | None = None) -> Launching:
    found = [LINES]
    if looped is not None:
        more = frames(first=LOOP)
        found.append(type(more)(t=0.0, pid=100, first=LOOP, frames=[looped]))
    window = steps(1.0, {"forward": 40, "backward": 40, "optimizer": 20})
    session = session_of(process(100), *found, window, stacks(1.0, *counted))
    return evidence_of(session.over("recent"), 100).launching


def test_a_plain_loop_shows_nothing() -> None:
    found = shown(FORWARD, BACKWARD, UPDATE)
    assert found == Launching(update=0.2, all_tensors_together=0.2)


@pytest.mark.parametrize(
    "source", ["h, c = self.cell(x[:, t], (h, c))", "h = cells[i](x[t], h)", "out, h = self.rnn(x[:, t], h)"]
)
def test_a_cell_for_each_step_of_time(source: str) -> None:
    found = shown(([0, 1, LOOP, 8], 40), BACKWARD, UPDATE, looped=in_loop(source))
    assert found.cells is not None and found.loop is None
    assert (found.cells.place.file, found.cells.place.line) == ("/me/model.py", 16)


def test_a_whole_sequence_in_one_call_is_no_cell() -> None:
    found = shown(([0, 1, LOOP, 8], 40), BACKWARD, UPDATE, looped=in_loop("out, _ = self.lstm(x)"))
    assert found.cells is None
    assert found.loop is not None  # a loop over layers, or whatever it is over


def test_the_trainings_own_loop_is_none_of_the_models() -> None:
    looped = in_loop("loss = model(x)", 40, "/me/train.py", "main")
    assert shown(([LOOP, 1], 40), BACKWARD, UPDATE, looped=looped).loop is None


def test_a_compiled_model_is_one_whose_forward_passes_through_a_compiled_call() -> None:
    assert shown(([0, 9, 1], 40), BACKWARD, UPDATE).is_compiled
    assert not shown(([0, 10, 1], 40), BACKWARD, UPDATE).is_compiled  # what is kept from being compiled
    assert shown(([0, 11], 40), BACKWARD, UPDATE).is_graphed


def test_an_update_tensor_by_tensor() -> None:
    found = shown(FORWARD, BACKWARD, ([STEP, 5, 6], 20))
    assert (found.update, found.tensor_by_tensor, found.all_tensors_together) == (0.2, 0.2, 0.0)


def test_the_scalers_own_work_is_not_the_optimizers() -> None:
    found = shown(FORWARD, BACKWARD, ([STEP, 12, 5, 7], 15), ([STEP, 12], 5))
    assert found.scaler == pytest.approx(0.05)


@pytest.mark.parametrize(("frame", "owner"), [(13, "transformers"), (14, "lightning"), (1, None)])
def test_whose_loop_it_is(frame: int, owner: str | None) -> None:
    assert shown(([frame, 0, 1], 40), BACKWARD, UPDATE).owner == owner


def test_too_few_samples_show_nothing() -> None:
    assert shown(([0, 9, 1], 5)) == Launching()
