"""A loop without backward: who makes its steps, which line runs the model, and what becomes of it once it trains."""

import pytest

from tests.session.records import frames, header, process, session_of, stacks, steps
from tuimon.session.state import run_state

TORCH = "/lib/site-packages/torch"
PLACES = [
    ("a.py", 30, "main", "for x in loader:", True),
    (f"{TORCH}/utils/data/dataloader.py", 1, "__next__"),
    ("a.py", 31, "main", "x = crop(x)", True),
    ("a.py", 32, "main", "out = model(x)", True),
    (f"{TORCH}/nn/modules/module.py", 2, "_call_impl"),
    ("a.py", 33, "main", "write(out)", True),
    ("a.py", 8, "write", "file.write(text)", True),
    ("a.py", 33, "main", "out.mean().backward()", True),
    (f"{TORCH}/autograd/__init__.py", 7, "backward"),
    (f"{TORCH}/utils/data/_utils/worker.py", 9, "_worker_loop"),
    ("a.py", 20, "train", "loss = model(x)", True),
    ("a.py", 21, "train", "loss.backward()", True),
]
TRAIN_MODEL, TRAIN_BACKWARD = [10, 4], [11, 8]
FETCH, CROP, CALL, MODEL, WRITE, BACKWARD = [0, 1], [2], [3], [3, 4], [5, 6], [7, 8]
TORN = [5, 4]  # a stack in the model with the line of write()
PHASES = {"data": 20, "between": 80}


def forward_steps(t, **more):
    return steps(t, PHASES, first_index=10 * (t - 1), backwards=0, updates=0, **more)


def shares_of(*counted, phases=PHASES):
    session = session_of(
        header(),
        process(),
        frames(*PLACES),
        *(steps(t, phases, first_index=10 * (t - 1), backwards=0, updates=0) for t in (1, 2)),
        stacks(2.0, *counted),
    )
    table = session.over("recent").phases(session.trainer())
    return {row.name: round(row.share, 2) for row in table.rows if row.share}


@pytest.mark.parametrize(
    ("counted", "found"),
    [
        ([(FETCH, 20), (MODEL, 60), (CALL, 4), (WRITE, 16)], {"data": 0.2, "forward": 0.64, "other": 0.16}),
        ([(FETCH, 20), (MODEL, 8), (CROP, 56), (WRITE, 16)], {"data": 0.76, "forward": 0.08, "other": 0.16}),
        ([(FETCH, 20), (MODEL, 8), (WRITE, 70), (TORN, 2)], {"data": 0.2, "forward": 0.08, "other": 0.72}),
    ],
)
def test_samples_divide_a_step_by_the_line_that_runs_the_model(counted, found):
    assert shares_of(*counted) == found


def test_a_second_model_ends_the_forward_pass():
    second = ([5, 4], 20)
    assert shares_of((FETCH, 20), (MODEL, 60), second) == {"data": 0.2, "forward": 0.8}


def test_a_process_that_trains_goes_before_one_that_does_not():
    both = [process(100), process(101)]
    assert session_of(header(), *both, forward_steps(1)).trainers() == [100]
    training = steps(1.0, {"forward": 10}, pid=101)
    assert session_of(header(), *both, forward_steps(1), training).trainers() == [101]


def test_steps_before_the_first_backward_were_an_evaluation():
    session = session_of(
        header(),
        process(),
        *(forward_steps(t) for t in (1, 2, 3)),
        *(steps(t, {"forward": 4, "backward": 6}, first_index=10 * (t - 4)) for t in (4, 5, 6)),
    )
    view = session.over("run")
    assert view.steps(100).total == 30
    assert {row.name for row in view.phases(100).rows if row.share} == {"forward", "backward"}


def attached(*windows):
    session = session_of(header(), process(markers=False), frames(*PLACES))
    for t, counted in enumerate(windows, 1):
        session.add(stacks(float(t), *counted))
    return session


INFERENCE = [(FETCH, 40), (CALL, 8), (MODEL, 30), (WRITE, 22)]


def test_without_markers_so_many_samples_without_an_update_are_of_inference():
    setting_up = [([2], 100)]
    assert attached(setting_up, INFERENCE).over("recent").phases(100) is None
    session = attached(setting_up, INFERENCE, INFERENCE)
    table = session.over("recent").phases(100)
    assert table.inferred and table.window_s == 2.0
    assert {row.name: row.share for row in table.rows if row.share} == {"data": 0.4, "forward": 0.38, "other": 0.22}
    assert run_state(session).name == "training"


@pytest.mark.parametrize("counted", [[(FETCH, 100)], [(MODEL, 100)]])
def test_without_batches_from_a_loader_and_a_model_it_is_none(counted):
    assert attached(*(6 * [counted])).over("recent").phases(100) is None


def test_a_worker_whose_data_set_fetches_and_runs_modules_makes_no_steps():
    in_worker = [([9, *ids], n) for ids, n in INFERENCE]
    assert attached(*(3 * [in_worker])).over("recent").phases(100) is None


def test_a_model_that_runs_for_long_without_a_fetch_goes_on_with_its_steps():
    session = attached(INFERENCE, INFERENCE, *(8 * [[(MODEL, 100)]]))
    assert run_state(session).name == "training"
    session = attached(INFERENCE, INFERENCE, *(8 * [[(WRITE, 100)]]))
    assert run_state(session).name == "between_steps"


def test_the_first_backward_shows_that_it_was_an_evaluation():
    session = attached(INFERENCE, INFERENCE, *(2 * [[(TRAIN_MODEL, 10), (TRAIN_BACKWARD, 90)]]))
    table = session.over("recent").phases(100)
    assert {row.name: row.share for row in table.rows if row.share} == {"forward": 0.1, "backward": 0.9}
    assert table.window_s == 1.0


def test_without_markers_those_train_whose_samples_show_it():
    processes = [process(100, markers=False), *(process(pid, ppid=100, markers=False) for pid in (101, 102))]
    session = session_of(header(), *processes, frames(*PLACES))
    assert session.trainers() == [100, 101, 102]  # nothing is known yet
    for t in (1.0, 2.0):
        session.add(stacks(t, *INFERENCE, pid=102))
    assert session.trainers() == [102] and session.trainer() == 102
    session.add(stacks(2.0, (BACKWARD, 9), pid=101))
    assert session.trainers() == [101]
    session.add(stacks(3.0, (BACKWARD, 9), pid=102))
    assert session.trainers() == [101, 102]
