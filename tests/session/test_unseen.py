"""Processes that work like a training but show no step, on literal sessions."""

import pytest

from tests.session.records import frames, header, process, session_of, stacks, steps, threads
from tuimon.records import Gpu
from tuimon.session.state import unseen_trainings
from tuimon.views.state_text import unseen_text


def run(*more, t=70.0):
    return session_of(header(), *more, threads(t, (100, "python", 1.0, "running"), cpu_ratio=3.9))


def test_a_busy_process_without_a_step_is_named_with_what_would_make_it_visible():
    (found,) = unseen_trainings(run(process()))
    assert (found.pid, found.cores, found.on_gpu) == (100, 3.9, False)
    assert unseen_text(found) == (
        "process 100 (python train.py) uses 3.9 cores, but no steps were seen: torch ran no backward or optimizer step"
        " from Python; tuimon.step() at the end of each step makes such a loop visible"
    )


def test_one_that_runs_a_model_is_named_however_few_cores_it_gets():
    idle = threads(70, (100, "python", 0.2, "running"), cpu_ratio=0.2)
    model = frames(
        ("train.py", 9, "main", "score = model(x)", True),
        ("/v/site-packages/torch/nn/modules/module.py", 9, "_call_impl"),
    )
    assert unseen_trainings(session_of(header(), process(), idle)) == []
    (found,) = unseen_trainings(session_of(header(), process(), model, stacks(69, ([0, 1], 20)), idle))
    assert (found.pid, found.cores) == (100, 0.2)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"markers": False, "python": "3.11", "markers_reason": "started with -I or -E"}, "started with -I or -E;"),
        ({"markers": False, "role": "other", "command": ["./trainer"]}, "it is not a Python program"),
    ],
)
def test_why_it_is_not_seen(facts, says):
    (found,) = unseen_trainings(run(process(**facts)))
    assert found.reason.startswith(says)


def test_one_that_only_uses_a_gpu_is_named_too():
    gpu = Gpu(t=69.0, pid=0, index=0, uuid="u", name="H", pids=[100])
    session = session_of(header(), process(), gpu, threads(70, (100, "python", 0.1, "waiting"), cpu_ratio=0.1))
    (found,) = unseen_trainings(session)
    assert "uses 0.10 cores and a GPU, but" in unseen_text(found)


def test_nothing_is_named_in_the_first_minute_beside_a_training_that_is_seen_or_of_a_worker():
    assert unseen_trainings(run(process(), t=50.0)) == []
    assert unseen_trainings(run(process(), steps(60, {"forward": 50, "backward": 40}))) == []
    assert unseen_trainings(run(process(role="worker"))) == []
    compiling = frames(("/v/lib/python3.11/site-packages/torch/_inductor/codecache.py", 9, "compile"))
    assert unseen_trainings(run(process(), compiling, stacks(69, ([0], 20)))) == []
    idle = session_of(header(), process(), threads(70, (100, "python", 0.1, "waiting"), cpu_ratio=0.1))
    assert unseen_trainings(idle) == []
