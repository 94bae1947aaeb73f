"""Stacks of a loop that a library owns: its functions' lines, its callbacks, rollouts in an optimizer's closure."""

from __future__ import annotations

import pytest

from tests.session.stacks.classified import BACKWARD, FETCH, MODULE, SITE, by_names
from tuimon.records import Frame
from tuimon.session.stacks.samples import Sample

LIBRARY = f"{SITE}/nice/trainer.py"
FRAMES = {
    "main": Frame("train.py", 37, "main", "model.fit(x)", True),
    "later": Frame("train.py", 39, "main", "model.test(x)", True),
    "fit": Frame(LIBRARY, 258, "fit"),
    "epoch:fetch": Frame(LIBRARY, 480, "epoch"),
    "epoch:prepare": Frame(LIBRARY, 482, "epoch"),
    "epoch:batch": Frame(LIBRARY, 484, "epoch"),
    "epoch:end": Frame(LIBRARY, 486, "epoch"),
    "epoch:update": Frame(LIBRARY, 488, "epoch"),
    "batch:prepare": Frame(LIBRARY, 493, "batch"),
    "batch:model": Frame(LIBRARY, 497, "batch"),
    "batch:score": Frame(LIBRARY, 499, "batch"),
    "batch:backward": Frame(LIBRARY, 501, "batch"),
    "batch:after": Frame(LIBRARY, 505, "batch"),
    "collect": Frame(f"{SITE}/torchrl/collectors/base.py", 12, "rollout"),
    "sample": Frame(f"{SITE}/nice/buffer.py", 70, "sample"),
    "batch:receive": Frame(LIBRARY, 494, "batch", "signals = self.signal_queue.get_many(timeout=1.0)"),
    "receive": Frame(f"{SITE}/nice/remote.py", 71, "wait", "ready = core.wait(objects, timeout)"),
    "after_pred": Frame("train.py", 33, "after_pred", "self.learn.loss += penalty(out)", True),
    "queue": Frame("/v/lib/python3.11/multiprocessing/queues.py", 103, "get"),
    "pipe": Frame("/v/lib/python3.11/multiprocessing/connection.py", 395, "_recv"),
    "next": Frame(f"{SITE}/nice/fetchers.py", 7, "__next__"),
    "generate": Frame(f"{SITE}/transformers/generation/utils.py", 8, "generate"),
    "environment": Frame(f"{SITE}/gymnasium/core.py", 9, "step"),
    "evaluator": Frame(f"{SITE}/nice/evaluator.py", 60, "process"),
    "model:score": Frame(f"{SITE}/nice/model.py", 55, "score"),
    "model:predict": Frame(f"{SITE}/nice/model.py", 96, "predict"),
    "save": Frame(f"{SITE}/nice/checkpoints.py", 12, "save"),
    "notify": Frame(f"{SITE}/nice/callbacks.py", 9, "notify"),
    "fetch": FETCH,
    "module": MODULE,
    "update_hooks": Frame(f"{SITE}/torch/optim/optimizer.py", 530, "wrapper"),
    "update": Frame(f"{SITE}/torch/optim/adam.py", 227, "step"),
    "backward": BACKWARD,
    "grad": Frame(f"{SITE}/torch/autograd/__init__.py", 9, "grad"),
    "augment": Frame("train.py", 22, "augment", "x[i] = x[j]", True),
    "numpy": Frame(f"{SITE}/numpy/lib.py", 5, "median"),
    "step:prepare": Frame("train.py", 23, "step", "x = augment(x)", True),
    "step:model": Frame("train.py", 24, "step", "loss = net(augment(x))", True),
    "step:log": Frame("train.py", 26, "step", "log(loss)", True),
    "step:backward": Frame("train.py", 25, "step", "self.backward(loss)", True),
    "on_batch": Frame("train.py", 30, "on_batch", "histogram(net)", True),
}
TRAINING = ["main fit epoch:fetch fetch", "main fit batch:model module", "main fit batch:backward backward"]
WHOLE_PATH = "main fit epoch:batch batch:backward backward"


def classified(stack: str, training: list[str], *, has_loader: bool = True, noted: str = WHOLE_PATH) -> Sample:
    """A stack among those of training, whose loop was noted."""
    return by_names(dict.fromkeys([*training, stack], 20), FRAMES, noted, has_loader=has_loader)[stack]


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ("main fit batch:prepare augment", "data"),
        ("main fit batch:prepare augment numpy", "data"),
        ("main fit epoch:prepare augment", "data"),  # one level above the model
        ("main fit batch:score augment", "other"),
        ("main fit epoch:end augment", "other"),
        ("main fit epoch:prepare notify augment", "other"),  # by a function that calls handlers
        ("main fit batch:prepare", "other"),  # the library's own work
        ("later batch:prepare augment", "other"),  # of another call of the library
    ],
)
def test_what_the_library_calls_before_the_model_makes_the_batch(stack: str, phase: str) -> None:
    last = classified(stack, TRAINING)
    assert last.phase == phase
    between = "augment" in stack and not stack.startswith("later") and "end" not in stack  # from the fetch to backward
    assert last.moved_from == ("forward" if between else None)  # where markers count it


def test_a_model_that_runs_before_for_a_rollout_begins_no_forward_pass() -> None:
    others = ["main fit epoch:prepare collect environment", "main fit epoch:prepare collect module"]
    last = classified("main fit batch:prepare augment", [*TRAINING[1:], *others], has_loader=False)
    assert last.phase == "data"


def test_without_a_loader_samples_divide_what_lies_before_backward() -> None:
    made = classified("main fit batch:prepare augment numpy", TRAINING[1:], has_loader=False)
    assert (made.phase, made.moved_from, made.excluded) == ("data", None, False)
    assert classified("main fit batch:score augment", TRAINING[1:], has_loader=False).phase == "forward"


def test_a_loop_that_nothing_noted_is_known_by_the_functions_that_samples_share() -> None:
    assert classified("main fit batch:prepare augment", TRAINING, noted="").phase == "data"
    assert classified("main fit epoch:prepare augment", TRAINING, noted="").phase == "other"


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ("main fit batch:model step:prepare augment numpy", "data"),
        ("main fit batch:model notify step:prepare augment", "data"),  # called by way of the library's strategy
        ("main fit batch:model step:log augment", "forward"),
        ("main fit batch:score step:prepare augment", "forward"),  # called for something else
    ],
)
def test_in_a_function_that_runs_the_model_for_the_library_what_is_called_above_it_makes_the_batch(
    stack: str, phase: str
) -> None:
    training = [TRAINING[0], "main fit batch:model step:model module", TRAINING[2]]
    last = classified(stack, training)
    assert (last.phase, last.moved_from) == (phase, "forward" if phase == "data" else None)


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ("main fit epoch:batch batch:prepare augment numpy", "data"),
        ("main fit epoch:batch batch:score augment", "other"),  # below the model
        ("main fit epoch:batch notify augment", "other"),  # by a function that has not run the model
        ("main fit epoch:batch batch:prepare", "other"),  # the library's own work
    ],
)
def test_a_function_of_the_library_that_runs_the_model_but_not_backward_makes_the_batch_above_it(
    stack: str, phase: str
) -> None:
    training = [TRAINING[0], "main fit epoch:batch batch:model module", "main fit epoch:end backward"]
    last = classified(stack, training, noted="main fit epoch:end backward")
    assert (last.phase, last.moved_from) == (phase, "forward" if "augment" in stack else None)


EVALUATION = ["main fit epoch:end fetch", "main fit epoch:end notify step:model module"]


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ("main fit epoch:end module", "eval"),  # a metric that is a module, or the model
        ("main fit epoch:end notify step:log augment", "eval"),  # in the user's function that runs the model
        ("main fit epoch:end on_batch", "other"),  # another function of the user's
        ("main fit epoch:end evaluator on_batch", "other"),  # a handler
        ("main fit epoch:end notify augment", "other"),
        ("main fit batch:model step:model module", "forward"),
        ("later epoch:end module", "other"),  # another call of the library, below the loop
    ],
)
def test_what_the_library_calls_after_the_update_evaluates_if_it_fetches_and_runs_the_model(
    stack: str, phase: str
) -> None:
    assert classified(stack, [*TRAINING, *EVALUATION]).phase == phase
    assert classified("main fit epoch:end fetch", [*TRAINING, EVALUATION[1]]).phase == "eval"
    assert classified("main fit epoch:end fetch", TRAINING).phase == "data"  # the next batch, fetched early


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ("main fit batch:model numpy", "forward"),  # a method of the library's model that calls its modules
        ("main fit batch:score numpy", "forward"),
        ("main fit batch:prepare numpy", "other"),
        ("main fit batch:score augment", "other"),
        ("main fit epoch:end numpy", "other"),
    ],
)
def test_the_librarys_own_code_from_the_model_to_backward_is_forward(stack: str, phase: str) -> None:
    assert classified(stack, TRAINING).phase == phase


def test_a_function_of_the_users_that_runs_the_model_after_the_update_is_side_work_in_what_else_it_does() -> None:
    training = [*TRAINING, "main fit epoch:end notify step:model module"]
    last = classified("main fit epoch:end notify step:log augment", training)
    assert (last.phase, last.excluded) == ("other", True)


@pytest.mark.parametrize("makes", ["generate module", "augment environment"])
def test_what_a_library_generates_or_plays_after_the_update_is_no_data(makes: str) -> None:
    assert classified(f"main fit epoch:prepare notify {makes}", TRAINING[1:], has_loader=False).phase == "data"
    assert classified(f"main fit epoch:end notify {makes}", TRAINING[1:], has_loader=False).phase == "other"


def test_what_runs_between_backward_and_the_update_is_no_evaluation() -> None:
    """A second pass on a batch of its own, of which the update is made too."""
    between = [*TRAINING, "main fit epoch:end fetch"]
    assert classified("main fit epoch:end module", between).phase == "eval"
    assert classified("main fit epoch:end module", [*between, "main fit epoch:update update"]).phase == "forward"


def test_a_second_model_of_a_library_is_no_evaluation() -> None:
    """A GAN's trainer: two times forward and backward, one after the other."""
    second = ["main fit epoch:end fetch", "main fit epoch:end batch:model module", "main fit epoch:end backward"]
    assert classified("main fit epoch:end batch:model step:model module", [*TRAINING, *second]).phase == "forward"


def test_a_function_that_the_optimizer_calls_to_train_makes_its_batch_too() -> None:
    """Lightning passes ``training_step`` and backward to the optimizer, as a closure."""
    training = [
        TRAINING[0],
        "main fit update batch:model step:model module",
        "main fit update batch:backward backward",
    ]
    noted = "main fit update epoch:batch batch:backward backward"
    assert classified("main fit update batch:model step:prepare augment", training, noted=noted).phase == "data"
    assert classified("main fit update", training, noted=noted).phase == "optimizer"


@pytest.mark.parametrize(
    ("stack", "phase", "moved_from"),
    [
        ("main fit update_hooks update batch:score", "forward", None),  # arithmetic on the loss
        ("main fit update_hooks update batch:score numpy", "forward", None),
        ("main fit update_hooks update batch:after numpy", "optimizer", None),  # clipping
        ("main fit update_hooks update batch:after on_batch", "other", "optimizer"),  # a callback after backward
        ("main fit update_hooks update update", "optimizer", None),
        ("main fit update_hooks on_batch", "optimizer", None),  # a hook of the optimizer's
    ],
)
def test_what_an_optimizers_closure_does_is_no_update(stack: str, phase: str, moved_from: str | None) -> None:
    training = [
        TRAINING[0],
        "main fit update_hooks update batch:model module",
        "main fit update_hooks update batch:backward backward",
    ]
    found = classified(stack, training, noted="main fit update_hooks update epoch:batch batch:backward backward")
    assert (found.phase, found.moved_from) == (phase, moved_from)
    assert found.excluded == (phase == "other")  # markers leave open what is between two closures


def test_what_follows_the_derivatives_of_a_loss_is_still_its_forward_pass() -> None:
    """A physics-informed network calls ``torch.autograd.grad`` in its loss: no backward pass of the loop yet."""
    training = [
        "main fit update_hooks update batch:model module",
        "main fit update_hooks update batch:model grad",
        "main fit update_hooks update batch:backward backward",
    ]
    noted = "main fit update_hooks update batch:model grad"
    score = classified("main fit update_hooks update batch:score numpy", training, has_loader=False, noted=noted)
    assert (score.phase, score.moved_from) == ("forward", None)


def test_without_a_loader_what_is_made_between_two_such_calls_of_the_optimizer_is_beside_them_by_the_markers() -> None:
    training = ["main fit update batch:model module", "main fit update batch:backward backward"]
    noted = "main fit epoch:batch update batch:backward backward"
    made = classified("main fit epoch:prepare augment", training, has_loader=False, noted=noted)
    assert (made.phase, made.excluded, made.moved_from) == ("data", True, "other")


def test_frames_of_a_library_between_the_users_do_not_hide_which_function_trains() -> None:
    """A stack keeps one of them where the path to backward keeps another."""
    training = [
        "main fit epoch:fetch fetch",
        "main fit batch:model step:model module",
        "main fit step:backward batch:backward backward",
    ]
    assert classified("main fit batch:model step:model", training, noted="").phase == "forward"
    assert classified("main fit batch:model step:log", training, noted="").phase == "other"


@pytest.mark.parametrize(("updates", "phase"), [(1, "other"), (2, "other")])
def test_few_of_many_samples_that_seem_to_update_after_the_update_were_torn(updates: int, phase: str) -> None:
    """``main fit epoch save``, and then ``main fit epoch batch adam``, may come out as ``main fit epoch adam``.

    What a library does after the update is none of the data, also where it steps the environment itself.
    """
    stacks = dict.fromkeys([*TRAINING[1:], "main fit epoch:prepare environment"], 20)
    more = {"main fit epoch:end update_hooks update": updates, "main fit epoch:end save": 60}
    assert by_names(stacks | more, FRAMES, WHOLE_PATH)["main fit epoch:end save"].phase == phase


# -- loops that a library owns: its callbacks are side work, whichever line they are called from


IGNITE = {
    "main": Frame("train.py", 37, "main", "trainer.run(loader)", True),
    "run": Frame(f"{SITE}/ignite/engine/engine.py", 1056, "run"),
    "fire": Frame(f"{SITE}/ignite/engine/engine.py", 453, "_fire_event"),
    "fetch": FETCH,
    "loss": Frame("train.py", 22, "update", "loss = cost(net(x), y)", True),
    "backward_line": Frame("train.py", 23, "update", "loss.backward()", True),
    "module": MODULE,
    "backward": BACKWARD,
    "environment": Frame(f"{SITE}/gymnasium/core.py", 576, "step"),
    "wrapper": Frame("train.py", 50, "observation", "return draw(state)", True),
    "after": Frame("train.py", 32, "after", "histogram(net)", True),
    "histogram": Frame("train.py", 44, "histogram", "bins[int(v)] += 1", True),
}
STEP = ["main run fetch", "main run loss module", "main run backward_line backward"]


def phase_of(stack: str, others: list[str], has_loader: bool = False) -> str:
    """The phase of a stack among others."""
    return by_names(dict.fromkeys([*others, stack], 20), IGNITE, has_loader=has_loader)[stack].phase


def test_a_wrapper_of_an_environment_that_a_library_steps_makes_the_data() -> None:
    training = ["main run module", "main run backward", "main run environment"]
    assert phase_of("main run environment wrapper", training) == "data"
    assert phase_of("main run fire after", [*STEP, "main run environment"]) == "other"


def test_without_a_loader_a_function_that_the_library_calls_may_make_the_data() -> None:
    assert phase_of("main run fire after histogram", [each for each in STEP if "fetch" not in each]) == "data"


def test_markers_tell_of_a_loader_whose_fetches_no_sample_has_seen() -> None:
    others = [each for each in STEP if "fetch" not in each]
    assert phase_of("main run fire after histogram", others, has_loader=True) == "other"


def test_a_call_of_the_users_own_on_the_line_that_trains_is_no_callback() -> None:
    """``step(histogram())``: what is called before the step makes its data."""
    others = ["main fetch", "main loss module", "main backward_line backward"]
    assert phase_of("main after histogram", others) == "data"


def test_what_a_library_does_between_update_and_fetch_is_side_work_though_it_is_on_the_line_that_fetches() -> None:
    """``trainer.run(loader)`` fetches, runs the model and calls backward: its number tells nothing."""
    others = ["main run fetch", "main run module", "main run backward"]
    assert phase_of("main run fire", others) == "other"
    assert phase_of("main", others) == "forward"  # the old batch is freed


# -- rollouts of a training that a library runs in an optimizer's closure


TRAINER = f"{SITE}/nice/trainer.py"
CLOSURE = {
    "main": Frame("train.py", 37, "main", "trainer.fit(model)", True),
    "fit": Frame(TRAINER, 258, "fit"),
    "update": Frame(f"{SITE}/torch/optim/adam.py", 227, "step"),
    "closure:loss": Frame(TRAINER, 131, "closure"),
    "closure:backward": Frame(TRAINER, 141, "closure"),
    "backward": BACKWARD,
    "training_step": Frame("train.py", 20, "training_step", "return self.shared_step(batch)", True),
    "play": Frame("train.py", 23, "shared_step", "played = self.play(self.policy)", True),
    "loss": Frame("train.py", 25, "shared_step", "loss = cost(self.policy(played))", True),
    "before": Frame("train.py", 11, "fill_buffer", "play(env)", True),
    "reset": Frame("train.py", 22, "shared_step", "state = env.reset()", True),
    "act": Frame("train.py", 30, "play", "action = policy(state)", True),
    "env.step": Frame("train.py", 31, "play", "state, reward, *_ = env.step(action)", True),
    "module": MODULE,
    "decode": Frame("policy.py", 9, "forward", "state = env.step(action)", True),
    "environment": Frame(f"{SITE}/nice/envs/tsp.py", 9, "step"),
}
LOSS = "main fit update closure:loss training_step "
IN_CLOSURE = {LOSS + "loss module": 30, "main fit update closure:backward backward": 40}


def in_closure(*stacks: str) -> list[Sample]:
    """Of these stacks, among those of training."""
    found = by_names(IN_CLOSURE | dict.fromkeys(stacks, 20), CLOSURE, has_loader=True)
    return [found[stack] for stack in stacks]


def test_what_a_model_steps_in_its_forward_pass_is_no_rollout() -> None:
    for sample in in_closure(LOSS + "loss module", LOSS + "loss module decode environment"):
        assert sample.phase == "forward"


def test_only_what_markers_count_as_forward_is_moved_out_of_it() -> None:
    """They show a rollout in the closure that a batch was fetched for as forward, one before the fetch as side work."""
    within, before = in_closure(LOSS + "play env.step environment", "main before env.step environment")
    assert (within.phase, within.excluded, within.moved_from) == ("data", True, "forward")
    assert (before.phase, before.excluded, before.moved_from) == ("data", False, None)
