"""Advice where a library owns the loop: by what its users can set, not by its own functions."""

import pytest

from tests.diagnosis.cpu import NO_GPU
from tests.session.records import frames, header, process, session_of, stacks, steps, threads
from tuimon.diagnosis import diagnose

TRAINER, LIGHTNING, KERAS = "transformers/trainer.py", "lightning/pytorch/loops/fit_loop.py", "keras/src/trainer.py"


def lines(library, own, function):
    """The frames of a loop in one file of a library, and of a function of the same library beside the training."""
    packages = "/v/lib/python3.11/site-packages"
    return frames(
        ("/home/me/fit.py", 31, "main", "trainer.train()", True),
        (f"{packages}/{library}", 200, "train"),
        ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
        (f"{packages}/torch/nn/modules/module.py", 99, "_call_impl"),
        (f"{packages}/{own}", 9, function),
        first=40,
    )


@pytest.mark.parametrize(
    ("library", "option"),
    [(TRAINER, "gradient_accumulation_steps"), (LIGHTNING, "accumulate_grad_batches"), (KERAS, "no_sync()")],
)
def test_a_trainer_that_exchanges_gradients_once_by_itself_has_an_option_for_how_often(library, option):
    session = session_of(header(), NO_GPU, lines(library, library, "step"))
    for rank in range(2):
        pid = 100 + rank
        session.add(process(pid, rank=rank, world_size=2))
        for t in range(1, 12):
            session.add(steps(t, {"forward": 20, "backward": 80}, pid=pid, first_index=10 * t))
        session.add(stacks(11, ([40, 41, 43], 20), ([40, 41, 42], 80), pid=pid))
        session.add(threads(11, (pid, "python", 0.55, "running", 0.0), pid=pid, cpu_ratio=0.55))
    finding = next(finding for finding in diagnose(session) if finding.rule == "comm_bound")
    assert option in finding.action
    assert ("no_sync()" in finding.action) == (option == "no_sync()")
