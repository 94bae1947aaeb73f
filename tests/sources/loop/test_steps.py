"""What a step is, and which phase its time belongs to, on literal marker sequences."""

import doctest

import pytest

from tests.sources.loop.loop_script import MS, Played, markers, ms, play
from tuimon.sources.loop import machine, steps
from tuimon.sources.loop.machine import LoopMachine
from tuimon.sources.loop.steps import Rounds, StepEnd

PLAIN = "fetch:5 wait:3 bwd:4 wait:1 opt:2 wait:1 "
BARE = "wait:6 bwd:3 opt:1 "
FIRST, SECOND, THIRD = (f"wait:6 bwd:3 opt@{number}:1 " for number in (1, 2, 3))


def test_the_worked_examples():
    assert doctest.testmod(machine) == (0, 15)
    assert doctest.testmod(steps).failed == 0


def lengths(played):
    return [step.total_ns / MS for step in played.steps]


#: One step; the lengths of all but the first and last, what it has, and the time of its phases.
LOOPS = {
    "plain": (PLAIN, (16, 1, 1, {"data": 5, "forward": 3, "backward": 4, "optimizer": 2, "other": 2})),
    "accumulation without a loader": (
        "wait:2 bwd:3 wait:2 bwd:3 wait:1 opt:1 wait:1",
        (13, 2, 1, {"backward": 6, "between": 5, "optimizer": 1, "other": 1}),
    ),
    "two optimizers": (
        "fetch:2 wait:1 bwd:3 opt:1 wait:1 bwd:3 opt:1",
        (12, 2, 2, {"data": 2, "forward": 1, "backward": 6, "optimizer": 2, "between": 1}),
    ),
    "an optimizer for each parameter": (
        "wait:3 bwd:2 " + "opt:1 " * 8,
        (13, 1, 8, {"backward": 2, "between": 3, "optimizer": 8}),
    ),
    "no loader": ("wait:6 bwd:3 opt:1", (10, 1, 1, {"between": 6, "backward": 3, "optimizer": 1})),
    "parameters updated by hand": ("wait:2 bwd:3 wait:1", (6, 1, 0, {"backward": 3, "between": 3})),
    "a loader without a torch optimizer": ("fetch:2 wait:2 bwd:3 wait:1", (8, 1, 0, {})),
    "a penalty": ("fetch:1 wait:2 bwd:1 wait:2 bwd:3 opt:1", (10, 2, 1, {})),
    "checkpointing": ("fetch:1 wait:2 bwd( wait:1 bwd:2 wait:1 bwd:2 ) opt:1", (10, 1, 1, {})),
    "an iterator in every step": (
        "iter:5 fetch:2 wait:3 bwd:4 opt:1",
        (15, 1, 1, {"backward": 4, "data": 7, "forward": 3, "optimizer": 1}),
    ),
    "an iterator that could not be made": ("iter@0:5 wait:1 " + PLAIN, (22, 1, 1, {})),
    "all inside the optimizer, as Lightning's": (
        "fetch:3 wait:1 opt( wait:4 bwd:5 wait:2 ) wait:1",
        (16, 1, 1, {"data": 3, "forward": 5, "backward": 5, "optimizer": 2, "other": 1}),
    ),
    "zipped loaders": (
        "fetch@1:2 fetch@2:3 wait:1 bwd:2 opt:1",
        (9, 1, 1, {"data": 5, "forward": 1, "backward": 2, "optimizer": 1}),
    ),
    "gradients that update parameters by hand": ("fetch:1 wait:2 grad:3 wait:1", (7, 1, 0, {})),
    "workers that are ended as the loop is left": (
        PLAIN + "over@7:30 wait:1",
        (47, 1, 1, {"data": 35, "forward": 3, "backward": 4, "optimizer": 2, "other": 3}),
    ),
    "an iterator that is deleted within a step": ("fetch:2 wait:3 bwd:4 over@7:30 opt:1 wait:1", (41, 1, 1, {})),
    "two models in turn": (FIRST + SECOND, (20, 2, 2, {"backward": 6, "between": 12, "optimizer": 2})),
    "three models in turn": (FIRST + SECOND + THIRD, (30, 3, 3, {"backward": 9, "between": 18, "optimizer": 3})),
}


@pytest.mark.parametrize(("step", "expected"), LOOPS.values(), ids=LOOPS)
def test_steps_of_loops(step, expected):
    length, backwards, updates, phases = expected
    played = play(step, 12)
    assert lengths(played)[1:-1] == [length] * 10
    assert {(found.backwards, found.updates) for found in played.steps[1:-1]} == {(backwards, updates)}
    assert ms(played.steps[1].phases) == phases or not phases
    assert (played.eval_count, played.steps_end_at) == (0, StepEnd.FETCH if "fetch" in step else StepEnd.UPDATE)


EVALUATED = "wait:2 fetch@2:1 wait:2 fetch@2:1 wait:2 stop@2:1 wait:1 "
ENDED_BY_PROGRAM = "fetch:5 wait:3 bwd:4 opt:2 step " * 3 + "fetch@2:2 wait:3 step wait:1 " * 5
#: A script; what ends its steps, their lengths, and the number and the time of batches that were evaluated.
SCRIPTS = {
    "data looked through before it trains":
        ("fetch@2:3 wait:9 fetch@2:3 wait:900 " + PLAIN * 4, (StepEnd.FETCH, [16, 16, 16, 15], 1, 12)),
    "an update without a backward before the loop":
        ("opt:1 wait:50 " + PLAIN * 4, (StepEnd.FETCH, [16, 16, 16, 15], 0, 0)),
    "updates by gradients that come from elsewhere":
        ("wait:6 opt:2 wait:1 " * 5, (StepEnd.UPDATE, [9] * 4, 0, 0)),
    "a batch for show before a loop without a loader":
        ("fetch:5 wait:20 " + BARE * 30, (StepEnd.UPDATE, [35, *[10] * 29], 0, 0)),
    "an evaluation in a loop without a loader":  # 2 ms before it, 1 ms after it
        (BARE * 20 + EVALUATED + BARE * 20, (StepEnd.UPDATE, [4, *[10] * 18, 12, 11, *[10] * 19], 2, 7)),
    "tuimon.step() overrules":  # the first step began before the first marker
        ((BARE * 2 + "step ") * 4, (StepEnd.API, [14, 20, 20, 20], 0, 0)),
    "batches that are evaluated in steps of the program's":
        (ENDED_BY_PROGRAM, (StepEnd.API, [14] * 3 + [5] * 5, 4, 4)),
}  # fmt: skip


@pytest.mark.parametrize(("script", "expected"), SCRIPTS.values(), ids=SCRIPTS)
def test_steps_of_scripts(script, expected):
    played = play(script)
    assert (played.steps_end_at, lengths(played), played.eval_count, played.eval_ns // MS) == expected


def test_the_last_step_counts_when_the_thread_ends():
    assert len(play(PLAIN, 5, finish=False).steps) == 4
    assert len(play(PLAIN, 5).steps) == 5


@pytest.mark.parametrize(("batches", "backward_ms"), [(3, 4), (24, 4), (4, 2500), (8, 2000)])
def test_gradient_accumulation_is_one_step_per_update_from_the_first(batches, backward_ms):
    """Though batches are many or slow before the first update."""
    micro = f"fetch:2 wait:3 bwd:{backward_ms} "
    played = play(f"{micro * batches} opt:1", 4)
    assert lengths(played) == [batches * (5 + backward_ms) + 1] * 4
    phases = {"data": 2 * batches, "forward": 3 * batches, "backward": backward_ms * batches, "optimizer": 1}
    assert ms(played.steps[0].phases) == phases


@pytest.mark.parametrize("batches", [33, 64, 65, 130, 700])
def test_an_optimizer_that_is_there_is_waited_for(batches):
    micro = "fetch:2 wait:3 bwd:4 "
    played = play(f"fetch:2 wait:3 bwd:4 made {micro * (batches - 1)} opt:1 {(micro * batches + 'opt:1 ') * 3}")
    assert lengths(played) == [batches * 9 + 1] * 4
    bare = "wait:3 bwd:4 "
    played = play(f"wait:3 bwd:4 made {bare * (batches - 1)} opt:1 {(bare * batches + 'opt:1 ') * 3}")
    assert lengths(played) == [batches * 7 - 2] + [batches * 7 + 1] * 3  # the first began before the first marker


@pytest.mark.parametrize(
    "half", ["wait:5000 bwd:6000 opt:1000 ", "wait:400 bwd:1300 opt:1 ", "wait:100 bwd:100000 opt:1 "]
)
@pytest.mark.parametrize("set_up", ["", "fetch@2:3 wait:9000 fetch@2:3 wait:9000 ", "fetch@2:3 wait:19000 "])
def test_neither_set_up_nor_slow_steps_cut_the_first_step_of_two_models_in_two(set_up, half):
    first, *others = play(set_up + f"fetch:2 {half * 2}" * 4).steps
    assert [step.updates for step in (first, *others)] == [2] * 4
    assert {step.total_ns for step in others} == {others[0].total_ns}


@pytest.mark.parametrize("step", ["wait:6 bwd:3 opt:1", "wait:6 bwd:3", "opt( wait:6 bwd:3 ) wait:1"])
@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_the_first_step_without_a_loader_counts_and_its_length_tells_nothing(step, count):
    played = play(step, count)
    assert [found.whole for found in played.steps] == [False] + [True] * (count - 1)


SOME = "fetch@2:1 wait:2 "


@pytest.mark.parametrize(
    ("evaluation", "count", "took_ms", "length"),
    [
        (SOME * 10 + "stop@2:1 wait:1 ", 10, 31, 17),
        # ``for x in islice(validation, 10): ...`` and then a metric, or a checkpoint: side work, not forward
        (SOME * 10 + "wait:30 ", 10, 30, 46),
        (SOME * 3 + "stop@2:1 ", 3, 10, 16),
        (SOME * 2 + "stop@2:1 ", 2, 7, 16),
        (SOME * 2, 2, 6, 16),
        ("fetch@2:1 " + SOME * 2 + "stop@2:1 wait:2 ", 3, 8, 18),  # it looks one ahead
    ],
)
def test_evaluation_is_kept_out_of_steps(evaluation, count, took_ms, length):
    played = play(PLAIN * 4 + evaluation + PLAIN * 4)
    assert (played.eval_count, played.eval_ns) == (count, took_ms * MS)
    assert lengths(played) == [16, 16, 16, 16, length, 16, 16, 15]
    assert ms(played.steps[4].phases) == ms(played.steps[3].phases) | {"other": length - 14}


def test_a_batch_fetched_ahead_of_the_one_that_trains_is_no_evaluation():
    """Accelerate's loaders, and so transformers' Trainer, fetch two batches before they train on the first."""
    train = "wait:3 bwd:4 opt:2 wait:1 "
    epoch = "iter@{0}:50 fetch@{0}:9 wait:1 " + f"fetch@{{0}}:5 {train}" * 4 + f"stop@{{0}}:1 {train}"
    played = play("".join(epoch.format(n) for n in (1, 2, 3)))
    assert (played.eval_count, played.eval_ns) == (0, 0)
    assert lengths(played)[5::5] == [75, 75]
    assert ms(played.steps[5].phases) == {"data": 64, "forward": 4, "backward": 4, "optimizer": 2, "other": 1}


@pytest.mark.parametrize(
    ("before", "script", "phase"),
    [
        (0, "fetch:1", "forward"),
        (0, "fetch:1 wait:1 bwd:1", "other"),
        (0, "bwd(", "backward"),
        # once it is known, what is open in an evaluation is evaluation
        (0, "fetch@2:5 wait:20 " * 4, "eval"),
        (4, "fetch@2:1 wait:2 fetch@2:1 wait:2 fetch@2:1", "eval"),
        (4, "fetch@2:1 wait:2 fetch@2:1 wait:2 fetch@2:1 wait:2 stop@2:1", "other"),
        (4, "fetch@2:1 wait:2 fetch@2:1 wait:2 fetch@2:1 wait:2 stop@2:1 fetch@1:1", "forward"),
        (4, "fetch@2:1 fetch@2:1", "forward"),  # one may be ahead
    ],
)
def test_the_open_phase(before, script, phase):
    assert LoopMachine().open_phase is None
    assert play(PLAIN * before + script, finish=False).machine.open_phase.name == phase


BATCH, USE, UPDATE = "fetch:2 wait:0.1 ", "wait:3 bwd:4 ", "opt:1 wait:1 "
#: By where batches are fetched: a step of so many.
FETCHED = {
    "nowhere": lambda batches: USE * batches + UPDATE,
    "before each use": lambda batches: (BATCH + USE) * batches + UPDATE,
    "before all": lambda batches: BATCH * batches + USE * batches + UPDATE,
    "ahead, before the update": lambda batches: (USE + BATCH) * batches + UPDATE,
    "ahead, after the update": lambda batches: USE * batches + UPDATE + BATCH,
}


@pytest.mark.parametrize("where", FETCHED)
@pytest.mark.parametrize("batches", [1, 2, 4])
@pytest.mark.parametrize("inspected", ["", "bwd:1 "])
@pytest.mark.parametrize("evaluation", ["", "fetch@2:1 wait:2 " * 6 + "stop@2:1 "])
def test_each_update_ends_a_step_wherever_its_batches_are_fetched(where, batches, inspected, evaluation):
    first, step = BATCH if "ahead" in where else "", FETCHED[where](batches) + inspected
    played = play(first + (step * 40 + evaluation) * 3)
    assert (len(played.steps), played.eval_count) == (120, 18 if evaluation else 0)
    assert len(play(first + step * 20, finish=False).steps) > 10  # they are not waited for


@pytest.mark.parametrize("batch", ["fetch:5 wait:3", "wait:8"])
def test_time_between_an_update_and_its_step_call_is_counted_once(batch):
    """What was absorbed by the step that ended was left in the next as well."""
    first, *others = play(f"{batch} bwd:4 opt:2 wait:10 step wait:20", 5).steps
    assert [step.total_ns / MS for step in others] == [44] * 4
    assert [step.end_ns / MS for step in (first, *others)] == [24, 68, 112, 156, 200]


def test_an_evaluation_that_takes_gradients_is_no_step():
    """Forces are derivatives of an energy, so that a model of atoms takes gradients for each batch it evaluates."""
    batch = "wait:2 grad:1 wait:1 bwd:3 wait:1 opt:1 "
    epoch = "".join(f"fetch@{{0}}:1 {batch}" for _ in range(4)) + "stop@{0}:1 "
    evaluation = "fetch@{0}:1 wait:2 grad:3 " * 80 + "stop@{0}:1 wait:1 "
    script = "".join((evaluation.format(9 - n) + epoch.format(n)) for n in (1, 2, 3))
    played = play(script.replace("grad:3", "grad:3 made", 1))  # of the optimizer the first backward tells
    assert played.eval_count == 3 * 80 - 1
    assert played.eval_ns == 3 * (80 * 6 + 1) * MS - 6 * MS
    assert lengths(played)[1:] == [10, 10, 10, 12, 10, 10, 10, 12, 10, 10, 10]
    assert {step.backwards for step in played.steps[1:]} == {2}


@pytest.mark.parametrize("before", ["bwd:4", "bwd:1 wait:1 bwd:1 wait:1"])
@pytest.mark.parametrize("after", ["bwd:2 wait:1", "bwd:2 wait:1 bwd:2 wait:1 bwd:2 wait:1"])
def test_gradients_looked_at_after_the_update_are_of_the_step_before(before, after):
    played = play(f"fetch:5 wait:3 {before} wait:1 opt:2 wait:1 {after}", 100)
    assert len(played.steps) == 100
    assert lengths(played)[:-1] == [16 + 3 * after.count("bwd")] * 99
    assert {step.backwards for step in played.steps[:-1]} == {before.count("bwd") + after.count("bwd")}
    assert played.steps_end_at is StepEnd.FETCH
    early = play(f"fetch:5 wait:3 {before} wait:1 opt:2 wait:1 {after}", 12, finish=False)
    assert len(early.steps) >= 10  # they are not waited for


def test_optimizer_step_that_raised_does_not_hold_the_phase():
    played = play(PLAIN * 3 + "fetch:5 wait:3 bwd:4 wait:1 opt( wait:3 " + PLAIN * 3)
    assert lengths(played) == [16] * 6 + [15]
    assert played.machine.open_phase.name == "between"


def test_abandoned_optimizer_steps_in_a_loop_without_a_loader():
    played = play(BARE * 4 + "wait:6 bwd:3 opt( wait:1 " + BARE * 5)
    # the step after the one that raised bears what cannot be told apart; the others are right
    assert sorted(lengths(played)[1:])[:7] == [10] * 7
    assert len(played.steps) >= 9


def test_the_stream_may_begin_anywhere():
    whole = markers(PLAIN * 6)
    for start in range(len(whole) // 2):
        played = Played(whole[start:])
        assert set(lengths(played)[1:-1]) <= {16.0}, start
        assert len(played.steps) >= 2


def test_held_back_pieces_are_bounded():
    played = play("wait:1 bwd:1", 1000, finish=False)
    assert len(played.steps) >= 980


# -- the beginning of an epoch

EPOCH = "iter:50 fetch:9 wait:3 bwd:4 opt:2 wait:1 fetch:1 wait:3 bwd:4 opt:2 wait:1 stop:1 wait:2"


def test_starting_workers_is_waiting_for_data():
    played = play(EPOCH, 4)
    assert lengths(played) == [19, 11, 72, 11, 72, 11, 72, 11]  # the stream begins with the first fetch
    assert ms(played.steps[2].phases) == {"backward": 4, "data": 60, "forward": 3, "optimizer": 2, "other": 3}


def test_starting_workers_for_an_evaluation_is_evaluation():
    train = "fetch:1 wait:3 bwd:4 opt:2 wait:1 fetch:1 wait:3 bwd:4 opt:2 wait:1 stop:1"
    played = play(f"iter:50 {train} iter@7:50 fetch@7:9 wait:3 fetch@7:9 wait:3 stop@7:1 wait:2", 4)
    assert played.eval_ns == 4 * (50 + 9 + 3 + 9 + 3 + 1) * MS
    assert played.eval_count == 8
    assert set(lengths(played)[2:-2:2]) == {64}
    assert sum(played.steps[4].phases.values()) == 64 * MS


# -- optimizers that step in turn in a loop without a DataLoader: one round of them is one step


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("begin", range(12, 16))
@pytest.mark.parametrize("count", [0, 1, 5, 30])
def test_updates_that_were_only_counted_keep_the_round(size, begin, count):
    each, passed = Rounds(), Rounds()
    updates = [frozenset({n % size}) for n in range(begin + count)]
    for update in updates:
        each.add_update(update)
    for update in updates[:begin]:
        passed.add_update(update)
    steps = passed.pass_updates(count)
    assert (passed.size, passed.open) == (each.size, each.open) == (size, (begin + count) % size)
    assert steps == (begin + count) // size - begin // size


@pytest.mark.parametrize(
    ("script", "updates"),
    [
        *(((FIRST + SECOND) * count, [2] * count) for count in (2, 3)),
        *(((FIRST + SECOND + THIRD) * count, [3] * count) for count in (2, 3)),
        ((FIRST + SECOND) * 5 + FIRST, [2] * 5 + [1]),  # a round that is not whole at the end
        (FIRST * 10 + (FIRST + SECOND) * 10, [1] * 14 + [2] * 8),  # two rounds show what a step is
        # optimizers that take no turns
        *(((FIRST * 2 + SECOND) * 12, [1] * 36), ((FIRST * 3 + SECOND * 3) * 12, [1] * 72)),
        ((FIRST * 5 + SECOND) * 12, [1] * 72),
        # with a loader it does not matter
        *((("fetch:2 " + (FIRST + SECOND) * rounds) * 6, [2 * rounds] * 6) for rounds in (1, 3)),
    ],
)
def test_updates_of_each_step(script, updates):
    assert [step.updates for step in play(script).steps] == updates


# -- a loop without backward: its batches are steps, or the calls of ``tuimon.step()``

FORWARD = "fetch:5 wait:20 "
TRAIN = "fetch:5 wait:3 bwd:4 opt:2 wait:1 "


@pytest.mark.parametrize(
    ("script", "count", "phases"),
    [
        (FORWARD * 40, 39, {"data": 5, "between": 20}),
        ((FORWARD * 3 + "step ") * 5, 5, {"data": 15, "between": 60}),
        ("wait:7 step " * 50, 50, {"between": 7}),  # samples divide it
    ],
)
def test_steps_of_a_loop_that_does_not_train(script, count, phases):
    steps = play(script).steps
    assert [step.usual for step in steps] == ["fetch" in script, *[True] * (count - 1)]  # else it began before
    assert all(ms(step.phases) == phases for step in steps if step.usual)


@pytest.mark.parametrize(("fetch_ms", "batches"), [(50, 40), (2500, 10)])
def test_batches_that_take_longer_to_fetch_than_to_use_are_steps(fetch_ms, batches):
    played = play(f"fetch:{fetch_ms} wait:1 ", batches + 20, finish=False)
    assert len(played.steps) >= batches
    assert {step.total_ns for step in played.steps} == {(fetch_ms + 1) * MS}


@pytest.mark.parametrize("batches", [4, 200])
def test_an_evaluation_before_the_training_leaves_no_step(batches):
    before = "fetch@2:5 wait:20 " * batches + "stop@2:1 "
    played = play(before + TRAIN * 10)
    assert (len(played.steps), played.eval_count) == (10, batches)
    assert all(step.backwards == 1 for step in played.steps)


def test_steps_that_were_told_before_the_training_are_taken_back():
    played = play("fetch@2:5 wait:20 " * 100 + "stop@2:1 ", finish=False)
    assert len(played.steps) == 100
    for marker in markers(TRAIN * 10, start_ns=100_000 * MS):
        played.machine.feed(*marker)
    played.machine.steps.finish()
    assert played.machine.steps.begins_anew
    assert len(played.machine.steps.take_ended()) == 10


def test_a_program_with_an_optimizer_only_evaluates_before_it_trains():
    played = play("made " + FORWARD * 100, finish=False)
    assert (len(played.steps), played.eval_count) == (0, 99)
