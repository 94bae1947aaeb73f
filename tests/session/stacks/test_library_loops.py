"""Stacks of a loop that a library owns: its functions' lines, its callbacks, rollouts in an optimizer's closure."""

import pytest

from tests.session.stacks.classified import BACKWARD, FETCH, MODULE, SITE, by_names
from tuimon.records import Frame

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
    "generate": Frame(f"{SITE}/transformers/generation/utils.py", 8, "generate"),
    "environment": Frame(f"{SITE}/gymnasium/core.py", 9, "step"),
    "evaluator": Frame(f"{SITE}/nice/evaluator.py", 60, "process"),
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
FETCHED, MODEL_RUN, TRAINED = "epoch:fetch fetch", "batch:model module", "batch:backward backward"
USUAL = [FETCHED, MODEL_RUN, TRAINED]
OWN_STEP = "batch:model step:model module"
CLOSURE_STEPS = ["update_hooks update batch:model module", "update_hooks update batch:backward backward"]
WHOLE_PATH = "epoch:batch batch:backward backward"
#: Stacks below ``main fit`` of a training, what the hooks noted of its backward, and whether it has a loader.
LOOPS: dict[str, tuple[list[str], str, bool]] = {
    "usual": (USUAL, WHOLE_PATH, True),
    "nothing noted": (USUAL, "", True),  # known by the functions that samples share
    "no loader": (USUAL[1:], WHOLE_PATH, False),
    "a rollout": (
        [*USUAL[1:], "epoch:prepare collect environment", "epoch:prepare collect module"],
        *(WHOLE_PATH, False),
    ),
    "a step of the user's": ([FETCHED, OWN_STEP, TRAINED], WHOLE_PATH, True),
    # frames of a library between the user's: a stack keeps one of them where the path to backward keeps another
    "backward in it": ([FETCHED, OWN_STEP, "step:backward batch:backward backward"], "", True),
    "backward apart": ([FETCHED, "epoch:batch batch:model module", "epoch:end backward"], "epoch:end backward", True),
    "evaluation": ([*USUAL, "epoch:end fetch", "epoch:end notify step:model module"], WHOLE_PATH, True),
    "evaluation without a fetch": ([*USUAL, "epoch:end notify step:model module"], WHOLE_PATH, True),
    "a second fetch": ([*USUAL, "epoch:end fetch"], WHOLE_PATH, True),
    # a second pass on a batch of its own, of which the update is made too
    "a second pass": ([*USUAL, "epoch:end fetch", "epoch:update update"], WHOLE_PATH, True),
    # a GAN's trainer: two times forward and backward, one after the other
    "two models": ([*USUAL, "epoch:end fetch", "epoch:end batch:model module", "epoch:end backward"], WHOLE_PATH, True),
    # Lightning passes ``training_step`` and backward to the optimizer, as a closure
    "a step in the optimizer": (
        [FETCHED, "update batch:model step:model module", "update batch:backward backward"],
        *("update epoch:batch batch:backward backward", True),
    ),
    "a closure": ([FETCHED, *CLOSURE_STEPS], "update_hooks update epoch:batch batch:backward backward", True),
    "a closure without a loader": (
        ["update batch:model module", "update batch:backward backward"],
        *("epoch:batch update batch:backward backward", False),
    ),
    # a physics-informed network calls ``torch.autograd.grad`` in its loss: no backward pass of the loop yet
    "derivatives": (
        [*CLOSURE_STEPS, "update_hooks update batch:model grad"],
        *("update_hooks update batch:model grad", False),
    ),
}


def full(stack: str) -> str:
    return stack if not stack or stack.startswith("later") else f"main fit {stack}"


@pytest.mark.parametrize(
    ("loop", "stack", "phase", "moved_from", "excluded"),
    [
        # what the library calls before the model makes the batch; markers count it as forward
        ("usual", "batch:prepare augment", "data", "forward", True),
        ("usual", "batch:prepare augment numpy", "data", "forward", True),
        ("usual", "epoch:prepare augment", "data", "forward", True),  # one level above the model
        ("usual", "batch:score augment", "other", "forward", True),
        ("usual", "epoch:end augment", "other", None, True),
        ("usual", "epoch:prepare notify augment", "other", "forward", True),  # by a function that calls handlers
        ("usual", "later batch:prepare augment", "other", None, True),  # of another call of the library
        ("usual", "epoch:end fetch", "data", None, False),  # the next batch, fetched early
        ("a rollout", "batch:prepare augment", "data", None, False),
        ("nothing noted", "batch:prepare augment", "data", "forward", True),
        ("nothing noted", "epoch:prepare augment", "other", None, False),
        # the library's own code is forward from the model to backward
        ("usual", "batch:prepare", "other", None, True),
        ("usual", "batch:prepare numpy", "other", None, True),
        ("usual", "batch:model numpy", "forward", None, True),  # a method of the library's model that calls its modules
        ("usual", "batch:score numpy", "forward", None, True),
        ("usual", "epoch:end numpy", "other", None, True),
        # without a loader samples divide what lies before backward
        ("no loader", "batch:prepare augment numpy", "data", None, False),
        ("no loader", "batch:score augment", "forward", None, False),
        ("no loader", "epoch:prepare notify generate module", "data", None, False),
        ("no loader", "epoch:end notify generate module", "other", None, False),
        ("no loader", "epoch:prepare notify augment environment", "data", None, False),
        ("no loader", "epoch:end notify augment environment", "other", None, False),
        # in a function that runs the model for the library what is called above it makes the batch
        ("a step of the user's", "batch:model step:prepare augment numpy", "data", "forward", True),
        ("a step of the user's", "batch:model notify step:prepare augment", "data", "forward", True),
        ("a step of the user's", "batch:model step:log augment", "forward", None, True),
        ("a step of the user's", "batch:score step:prepare augment", "forward", None, True),  # for something else
        ("backward in it", "batch:model step:model", "forward", None, True),
        ("backward in it", "batch:model step:log", "other", None, True),
        # so it does in a function of the library that runs the model but not backward
        ("backward apart", "epoch:batch batch:prepare augment numpy", "data", "forward", True),
        ("backward apart", "epoch:batch batch:score augment", "other", "forward", True),  # below the model
        ("backward apart", "epoch:batch notify augment", "other", "forward", True),  # it has not run the model
        ("backward apart", "epoch:batch batch:prepare", "other", None, True),  # the library's own work
        # what it calls after the update evaluates if it fetches and runs the model
        ("evaluation", "epoch:end module", "eval", None, False),  # a metric that is a module, or the model
        ("evaluation", "epoch:end notify step:log augment", "eval", None, False),  # where the user's runs the model
        ("evaluation", "epoch:end on_batch", "other", None, True),  # another function of the user's
        ("evaluation", "epoch:end evaluator on_batch", "other", None, True),  # a handler
        ("evaluation", "epoch:end notify augment", "other", None, True),
        ("evaluation", "batch:model step:model module", "forward", None, True),
        ("evaluation", "later epoch:end module", "other", None, True),  # another call of the library, below the loop
        ("evaluation without a fetch", "epoch:end fetch", "eval", None, False),
        ("evaluation without a fetch", "epoch:end notify step:log augment", "other", None, True),
        ("a second fetch", "epoch:end module", "eval", None, False),
        ("a second pass", "epoch:end module", "forward", None, True),
        ("two models", "epoch:end batch:model step:model module", "forward", None, True),
        # what an optimizer's closure does is no update; markers leave open what is between two closures
        ("a step in the optimizer", "update batch:model step:prepare augment", "data", "forward", True),
        ("a step in the optimizer", "update", "optimizer", None, False),
        ("a closure", "update_hooks update batch:score", "forward", None, False),  # arithmetic on the loss
        ("a closure", "update_hooks update batch:score numpy", "forward", None, False),
        ("a closure", "update_hooks update batch:after numpy", "optimizer", None, False),  # clipping
        ("a closure", "update_hooks update batch:after on_batch", "other", "optimizer", True),  # after backward
        ("a closure", "update_hooks update update", "optimizer", None, False),
        ("a closure", "update_hooks on_batch", "optimizer", None, False),  # a hook of the optimizer's
        ("a closure without a loader", "epoch:prepare augment", "data", "other", True),
        ("derivatives", "update_hooks update batch:score numpy", "forward", None, False),
    ],
)
def test_the_phase_of_a_stack_in_a_loop_that_a_library_owns(
    loop: str, stack: str, phase: str, moved_from: str | None, excluded: bool
) -> None:
    training, noted, has_loader = LOOPS[loop]
    stacks = dict.fromkeys(map(full, [*training, stack]), 20)
    found = by_names(stacks, FRAMES, full(noted), has_loader=has_loader)[full(stack)]
    assert (found.phase, found.moved_from, found.excluded) == (phase, moved_from, excluded)


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

WHOLE = ["main run fetch", "main run module", "main run backward"]


@pytest.mark.parametrize(
    ("stack", "others", "has_loader", "phase"),
    [
        # a wrapper of an environment that the library steps makes the data
        (
            "main run environment wrapper",
            ["main run module", "main run backward", "main run environment"],
            False,
            "data",
        ),
        ("main run fire after", [*STEP, "main run environment"], False, "other"),
        # so may a function that it calls, but where a loader is fetched from: markers tell what no sample has seen
        ("main run fire after histogram", STEP[1:], False, "data"),
        ("main run fire after histogram", STEP[1:], True, "other"),
        # ``step(histogram())``: what is called before the step makes its data
        ("main after histogram", ["main fetch", "main loss module", "main backward_line backward"], False, "data"),
        # ``trainer.run(loader)`` fetches, runs the model and calls backward: its number tells nothing
        ("main run fire", WHOLE, False, "other"),
        ("main", WHOLE, False, "forward"),  # the old batch is freed
    ],
)
def test_what_a_library_calls_beside_the_step(stack: str, others: list[str], has_loader: bool, phase: str) -> None:
    stacks = dict.fromkeys([*others, stack], 20)
    assert by_names(stacks, IGNITE, has_loader=has_loader)[stack].phase == phase


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
    "env.step": Frame("train.py", 31, "play", "state, reward, *_ = env.step(action)", True),
    "module": MODULE,
    "decode": Frame("policy.py", 9, "forward", "state = env.step(action)", True),
    "environment": Frame(f"{SITE}/nice/envs/tsp.py", 9, "step"),
}
LOSS = "main fit update closure:loss training_step "
IN_CLOSURE = {LOSS + "loss module": 30, "main fit update closure:backward backward": 40}


@pytest.mark.parametrize(
    ("stack", "found"),
    [
        (LOSS + "loss module", ("forward", False, None)),
        (LOSS + "loss module decode environment", ("forward", False, None)),  # the model's own steps are no rollout
        # markers show a rollout in the closure that a batch was fetched for as forward, one before as side work
        (LOSS + "play env.step environment", ("data", True, "forward")),
        ("main before env.step environment", ("data", False, None)),
    ],
)
def test_rollouts_in_and_before_an_optimizers_closure(stack: str, found: tuple[str, bool, str | None]) -> None:
    last = by_names(IN_CLOSURE | {stack: 20}, CLOSURE, has_loader=True)[stack]
    assert (last.phase, last.excluded, last.moved_from) == found
