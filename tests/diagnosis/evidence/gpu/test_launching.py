"""What samples show of how a loop launches: cells one by one, compiled calls, tensor by tensor, whose loop it is."""

from __future__ import annotations

import pytest

from tests.session.records import frames, process, session_of, stacks, steps
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.evidence.gpu import Launching
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


def shown(*counted: tuple[list[int], int], looped: Frame | None = None) -> Launching:
    found = [LINES]
    if looped is not None:
        more = frames(first=LOOP)
        found.append(type(more)(t=0.0, pid=100, first=LOOP, frames=[looped]))
    window = steps(1.0, {"forward": 40, "backward": 40, "optimizer": 20})
    session = session_of(process(100), *found, window, stacks(1.0, *counted))
    return evidence_of(session.over("recent"), 100).gpu.launching


@pytest.mark.parametrize(("frame", "owner"), [(13, "transformers"), (14, "lightning"), (1, None)])
def test_whose_loop_it_is(frame: int, owner: str | None) -> None:
    assert shown(([frame, 0, 1], 40), BACKWARD, UPDATE).owner == owner
