"""Phases from stack samples alone, and those of a loop without backward passes."""

from collections import Counter

import pytest

from tests.session.records import (
    counted,
    extend,
    frames,
    header,
    hot_lines,
    loop,
    one_process,
    process,
    session_of,
    stacks,
    steps,
    totals_of,
)
from tuimon.session.phase_table import Moved, SplitShares, phase_table
from tuimon.session.state import run_state

TORCH = "/lib/site-packages/torch"
# The user's code:                     line
#   main: train()                      20
#         evaluate()                   21   in one shape
#   train: for x, y in loader:         30
#              loss = model(x)         31
#              loss.backward()         32
#              opt.step()              33
#              for z in held_out:      34   in another shape
#                  model(z)            35
#              plot()                  36
#   evaluate: for x, y in held_out:    40
#                 model(x)             41
#                 count(x)             42
#   score: with torch.no_grad():         45
#              for x, y in held_out:     46
#                  model(x)              47
PLACES = {
    "train": ("a.py", 20, "main", "train()", True),
    "evaluate": ("a.py", 21, "main", "evaluate()", True),
    "early": ("a.py", 29, "train", "evaluate()", True),
    "fetch": ("a.py", 30, "train", "for x, y in loader:", True),
    "forward": ("a.py", 31, "train", "loss = model(x)", True),
    "backward": ("a.py", 32, "train", "loss.backward()", True),
    "step": ("a.py", 33, "train", "opt.step()", True),
    "inner fetch": ("a.py", 34, "train", "for z in held_out:", True),
    "inner forward": ("a.py", 35, "train", "model(z)", True),
    "ahead": ("a.py", 34, "train", "x, y = next(batches)", True),
    "plot": ("a.py", 36, "train", "plot()", True),
    "eval fetch": ("a.py", 40, "evaluate", "for x, y in held_out:", True),
    "eval forward": ("a.py", 41, "evaluate", "model(x)", True),
    "eval count": ("a.py", 42, "evaluate", "count(x)", True),
    "no_grad fetch": ("a.py", 46, "score", "for x, y in held_out:", True, "", "", (45, 47)),
    "no_grad forward": ("a.py", 47, "score", "model(x)", True, "", "", (45, 47)),
    "__next__": (f"{TORCH}/utils/data/dataloader.py", 5, "__next__"),
    "_call_impl": (f"{TORCH}/nn/modules/module.py", 6, "_call_impl"),
    "backward()": (f"{TORCH}/autograd/__init__.py", 7, "backward"),
    "grad()": (f"{TORCH}/autograd/__init__.py", 9, "grad"),
    "wrapper": (f"{TORCH}/optim/optimizer.py", 8, "wrapper"),
    "item": ("data.py", 9, "__getitem__", "x = read(i)", True),
    "import": ("<frozen importlib._bootstrap>", 10, "_find_and_load"),
    "<module>": (f"{TORCH}/optim/adadelta.py", 11, "<module>"),
    "parameters": (f"{TORCH}/nn/modules/module.py", 12, "parameters"),
    "compile": (f"{TORCH}/_dynamo/convert_frame.py", 13, "_compile"),
}
TRAINING = {
    "train, fetch, __next__, item": 20,
    "train, forward, _call_impl": 30,
    "train, backward, backward()": 40,
    "train, step, wrapper": 10,
}


def phases_of(samples):
    """Samples of each phase, by frames alone."""
    session = one_process(frames(*PLACES.values()), stacks(1, *counted(PLACES, samples)), markers=False)
    return session, +session.over("recent").of(100).samples.marked_counts()


def test_a_call_that_fetches_and_runs_the_model_evaluates():
    evaluation = {
        "evaluate, eval fetch, __next__, item": 5,
        "evaluate, eval forward, _call_impl": 15,
        "evaluate, eval count": 5,
    }
    session, found = phases_of(TRAINING | evaluation)
    assert found == {"data": 20, "forward": 30, "backward": 40, "optimizer": 10, "eval": 25}
    rows = {row.name: row.share for row in session.over("recent").of(100).phases.rows}
    assert rows["eval"] == pytest.approx(0.2)
    assert rows["forward"] == pytest.approx(0.3)  # of the steps: evaluation is no part of them


def test_a_stack_without_its_root_counts_nowhere_unless_a_boundary_shows_its_phase():
    lost = {"item": 3, "parameters": 4, "__next__": 2}
    session, found = phases_of(TRAINING | {"train, plot": 8} | lost)
    assert found == {"data": 22, "forward": 30, "backward": 40, "optimizer": 10, "other": 8}
    [line] = hot_lines(session.over("recent"), 100, "other")
    assert (line.samples, line.share) == (8, 1.0)


def without(*phases):
    """Training, of which these phases show no sample."""
    return {stack: n for stack, n in TRAINING.items() if not any(phase in stack for phase in phases)}


FOUND = {"data": 20, "forward": 30, "backward": 40, "optimizer": 10}
HELPER = {"train, early, eval fetch, __next__": 5, "train, early, eval forward, _call_impl": 5}


@pytest.mark.parametrize(
    ("samples", "differs"),
    [
        # evaluation before the forward pass; the same function trains where no other fetches and runs the model
        (TRAINING | HELPER, {"eval": 10}),
        (without("fetch", "forward") | HELPER, {"data": 5, "forward": 5}),
        (without("backward", "step") | {"train, backward, grad()": 40}, {"optimizer": 0}),
        # evaluation without gradients, with what it fetches
        (TRAINING | {"evaluate, no_grad fetch, __next__": 9, "evaluate, no_grad forward, _call_impl": 5}, {"eval": 14}),
        # the constructor of an optimizer, above the loop, imports much when the first one is made
        (TRAINING | {"train, early, import": 12, "train, early, <module>": 20}, {}),
        # the next batch, fetched below the update
        (TRAINING | {"train, ahead, __next__, item": 9}, {"data": 29}),
        (TRAINING | {"train, plot, ahead, __next__, item": 9}, {"data": 29}),
        # ``backward(`` on one line and ``model(x))`` on the next
        (without("forward") | {"train, plot, _call_impl": 7}, {"forward": 7}),
        # markers have the forward pass begin where the fetch ends: the old batch is freed after that
        (TRAINING | {"train, fetch": 6}, {"forward": 36}),
    ],
)
def test_phases_of_a_loop_by_frames_alone(samples, differs):
    _, found = phases_of(samples)
    assert found == +Counter(FOUND | differs)


def test_what_was_before_the_first_backward_is_of_no_step():
    set_up = {"plot, item": 500, "plot, import, <module>, wrapper": 50}  # a decorator of that name
    loading, importing, *training = counted(PLACES, set_up | TRAINING)
    session = one_process(frames(*PLACES.values()), stacks(1, loading, importing), markers=False)
    assert not session.over("recent").of(100).phases
    session.add(stacks(2, loading, *training))  # it begins here: some of these are of the set-up
    assert not session.over("recent").of(100).phases
    extend(session, stacks(3, *training), stacks(4, loading))
    assert session.over("recent").of(100).samples.marked_counts().total() == 600


def test_a_first_step_that_compiles_its_passes_is_of_no_step():
    """Else an attach in the midst of a first compilation would see a training that recompiles in each step."""
    first = {"train, forward, _call_impl, compile": 60, "train, backward, backward(), compile": 40}
    compiling, passing = (counted(PLACES, samples) for samples in (first, TRAINING))
    session = one_process(frames(*PLACES.values()), [stacks(t, *compiling) for t in range(1, 9)], markers=False)
    assert not session.over("recent").of(100).phases
    assert run_state(session).doing == "compiling"
    extend(session, [stacks(t, *passing) for t in range(9, 12)])
    assert session.over("recent").of(100).samples.marked_counts() == Counter({name: 2 * n for name, n in FOUND.items()})


def test_what_may_be_of_any_phase_makes_none_of_them_sure():
    """No line of the user's calls backward: nothing shows which side of the model the rest is on."""
    called = frames(
        ("/lib/site-packages/events/loop.py", 372, "run"),
        ("/lib/site-packages/events/learner.py", 777, "on_batch"),
        (f"{TORCH}/autograd/__init__.py", 7, "backward"),
    )
    session = one_process(called, stacks(1, ([1, 2], 40), ([0], 60)), markers=False)
    rows = {row.name: row for row in session.over("recent").of(100).phases.rows}
    assert rows["other"].share == 0.6
    assert [rows[name].error for name in ("data", "forward", "other")] == [0.6] * 3
    assert rows["backward"].error < 0.1


@pytest.mark.parametrize(
    ("share", "data"),
    [
        (0.30, 0.31),
        (0.50, 0.41),  # samples may find a phase too often: all of it, no more
        (0.80, 0.01),  # what is most of the step is no part of a forward pass that is less than half
    ],
)
def test_more_than_a_phase_has_is_not_moved_out_of_it(share, data):
    totals = totals_of(steps(1, {"data": 1, "forward": 40, "backward": 9, "other": 50}))
    split = SplitShares({"forward": 1.0}, 0, moved=(Moved("forward", "data", share, 1000),))
    table = phase_table(100, totals, split)
    assert table
    found = {row.name: row.share for row in table.rows}
    assert found["data"] == pytest.approx(data)
    assert found["data"] + found["forward"] == pytest.approx(0.41)


INFERRING = [
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
]
FETCH, CROP, CALL, MODEL, WRITE, BACKWARD = [0, 1], [2], [3], [3, 4], [5, 6], [7, 8]
TORN = [5, 4]  # a stack in the model with the line of write()
PHASES = {"data": 20, "between": 80}


def forward_steps(t, **more):
    return steps(t, PHASES, first_index=10 * (t - 1), backwards=0, updates=0, **more)


@pytest.mark.parametrize(
    ("counted", "found"),
    [
        ([(FETCH, 20), (MODEL, 60), (CALL, 4), (WRITE, 16)], {"data": 0.2, "forward": 0.64, "other": 0.16}),
        ([(FETCH, 20), (MODEL, 8), (CROP, 56), (WRITE, 16)], {"data": 0.76, "forward": 0.08, "other": 0.16}),
        ([(FETCH, 20), (MODEL, 8), (WRITE, 70), (TORN, 2)], {"data": 0.2, "forward": 0.08, "other": 0.72}),
        ([(FETCH, 20), (MODEL, 60), (TORN, 20)], {"data": 0.2, "forward": 0.8}),  # a second model
    ],
)
def test_samples_divide_a_step_by_the_line_that_runs_the_model(counted, found):
    session = one_process(frames(*INFERRING), loop((1, 2), PHASES, backwards=0, updates=0), stacks(2.0, *counted))
    table = session.over("recent").of(session.trainer()).phases
    assert {row.name: round(row.share, 2) for row in table.rows if row.share} == found


def test_a_process_that_trains_goes_before_one_that_does_not():
    both = [process(100), process(101)]
    assert session_of(header(), *both, forward_steps(1)).trainers() == [100]
    training = steps(1.0, {"forward": 10}, pid=101)
    assert session_of(header(), *both, forward_steps(1), training).trainers() == [101]


def test_steps_before_the_first_backward_were_an_evaluation():
    trained = [steps(t, {"forward": 4, "backward": 6}, first_index=10 * (t - 4)) for t in (4, 5, 6)]
    session = one_process([forward_steps(t) for t in (1, 2, 3)], trained)
    view = session.over("whole")
    assert view.of(100).steps.total == 30
    assert {row.name for row in view.of(100).phases.rows if row.share} == {"forward", "backward"}


def attached(*windows):
    return one_process(frames(*INFERRING), [stacks(t, *seen) for t, seen in enumerate(windows, 1)], markers=False)


INFERENCE = [(FETCH, 40), (CALL, 8), (MODEL, 30), (WRITE, 22)]


def test_without_markers_so_many_samples_without_an_update_are_of_inference():
    setting_up = [([2], 100)]
    assert not attached(setting_up, INFERENCE).over("recent").of(100).phases
    session = attached(setting_up, INFERENCE, INFERENCE)
    table = session.over("recent").of(100).phases
    assert table.inferred and table.window_s == 2.0
    assert {row.name: row.share for row in table.rows if row.share} == {"data": 0.4, "forward": 0.38, "other": 0.22}
    assert run_state(session).name == "training"


@pytest.mark.parametrize("counted", [[(FETCH, 100)], [(MODEL, 100)], [([9, *ids], n) for ids, n in INFERENCE]])
def test_without_batches_from_a_loader_and_a_model_or_in_a_worker_it_is_none(counted):
    assert not attached(*(6 * [counted])).over("recent").of(100).phases


def test_a_model_that_runs_for_long_without_a_fetch_goes_on_with_its_steps():
    session = attached(INFERENCE, INFERENCE, *(8 * [[(MODEL, 100)]]))
    assert run_state(session).name == "training"
    session = attached(INFERENCE, INFERENCE, *(8 * [[(WRITE, 100)]]))
    assert run_state(session).name == "between_steps"


def test_without_markers_those_train_whose_samples_show_it():
    processes = [process(100, markers=False), *(process(pid, ppid=100, markers=False) for pid in (101, 102))]
    session = session_of(header(), *processes, frames(*INFERRING))
    assert session.trainers() == [100, 101, 102]  # nothing is known yet
    extend(session, [stacks(t, *INFERENCE, pid=102) for t in (1.0, 2.0)])
    assert session.trainers() == [102] and session.trainer() == 102
    session.add(stacks(2.0, (BACKWARD, 9), pid=101))
    assert session.trainers() == [101]
    session.add(stacks(3.0, (BACKWARD, 9), pid=102))
    assert session.trainers() == [101, 102]
