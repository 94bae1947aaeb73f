"""Each line of a loop, and each stack by its frames: the loop of the docstring of ``session.stacks.loop``."""

from collections.abc import Iterable

import pytest

from tests.session.stacks.classified import (
    BACKWARD,
    FETCH,
    GRAD,
    MODULE,
    SITE,
    TORCH,
    UPDATE,
    by_ids,
    by_names,
    classified,
    last_of,
    own,
)
from tuimon.records import Frame, LoopStack
from tuimon.session.stacks.loop import MIN_REST_SAMPLES
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Trie

BELOW = {
    "fetch": FETCH,
    "module": MODULE,
    "backward": BACKWARD,
    "update": UPDATE,
    "grad": GRAD,
    "augment": Frame("train.py", 9, "augment", "", True),
    "log": Frame("train.py", 8, "log", "", True),
}
LOOP = [(44, "fetch"), (46, "module"), (47, "backward"), (49, "update")]


def stacks_of(loop: Iterable[tuple[int, str | None]]) -> list[list[Frame]]:
    """Stacks at lines of the loop, each with what it calls."""
    return [own(line, "", *([BELOW[below]] if below else [])) for line, below in loop]


def sample(line: int, below: str | None, loop: list[tuple[int, str]], count: int = 1) -> Sample:
    """A sample at a line of the loop."""
    return last_of(*stacks_of([*loop, (line, below)]), count=count)


METRIC = Frame(f"{SITE}/torchmetrics/metric.py", 315, "forward")


@pytest.mark.parametrize(
    ("line", "inside", "found"),
    [
        (46, [MODULE, METRIC], ("other", "forward")),
        (46, [Frame(f"{SITE}/sklearn/metrics/_classification.py", 7, "f1_score")], ("other", "forward")),
        (46, [Frame(f"{SITE}/lightning/pytorch/core/module.py", 7, "log_dict")], ("other", "forward")),
        (46, [Frame(f"{SITE}/lightning/pytorch/core/module.py", 9, "toggle_optimizer")], ("forward", None)),
        (46, [MODULE, METRIC, Frame(f"{SITE}/torchmetrics/image/ssim.py", 8, "update")], ("forward", None)),
        (46, [MODULE], ("forward", None)),
        (50, [MODULE, METRIC], ("other", None)),
    ],
)
def test_a_metric_before_backward_is_side_work_unless_one_may_train_on_it(line, inside, found):
    """Markers count it as forward: they measure from the fetch to backward."""
    last = last_of(*stacks_of(LOOP), own(line, "", *inside))
    assert (last.phase, last.moved_from) == found


TWO_MODELS = [*LOOP, (51, "module"), (52, "backward"), (54, "update")]
TWO_PASSES = [*LOOP[:3], (49, "module"), (49, "backward"), (51, "update")]
NO_MODULES = [(44, "fetch"), (47, "backward"), (49, "update")]
ONLY_UPDATES = [(49, "update")]


@pytest.mark.parametrize(
    ("loop", "line", "below", "count", "phase", "measured", "unsure"),
    [
        (LOOP, 44, "fetch", 1, "data", False, False),
        (LOOP, 44, None, 1, "forward", True, False),
        (LOOP, 45, "augment", 1, "data", True, False),
        (LOOP, 45, None, 1, "data", True, False),
        (LOOP, 46, "module", 1, "forward", True, False),
        (LOOP, 46, None, 1, "forward", True, False),
        (LOOP, 47, "backward", 1, "backward", False, False),
        (LOOP, 48, None, 1, "other", True, False),
        (LOOP, 49, "update", 1, "optimizer", False, False),
        (LOOP, 50, None, 1, "other", True, False),
        (LOOP, 50, "module", 1, "other", True, False),
        # of two models in turn only what is between their steps is open
        (TWO_MODELS, 45, None, 1, "data", True, False),
        (TWO_MODELS, 46, "module", 1, "forward", True, False),
        (TWO_MODELS, 48, None, 1, "other", True, False),
        (TWO_MODELS, 50, None, 1, "other", False, False),
        (TWO_MODELS, 51, "module", 1, "forward", False, False),
        (TWO_MODELS, 53, None, 1, "other", True, False),
        (TWO_MODELS, 55, None, 1, "other", True, False),
        # a second pass on the line of its backward, as sharpness-aware minimization has it
        (TWO_PASSES, 48, None, 1, "other", False, False),
        (TWO_PASSES, 49, "module", 1, "forward", False, False),
        (TWO_PASSES, 50, None, 1, "other", True, False),
        # without a fetch only what is before the update is measured
        (LOOP[1:], 45, None, 1, "data", False, False),
        (LOOP[1:], 48, None, 1, "other", True, False),
        (LOOP[1:], 50, None, 1, "other", False, False),
        # without modules lines before backward are surely forward once there are enough samples
        (NO_MODULES, 46, None, 1, "forward", False, True),
        (NO_MODULES, 46, None, MIN_REST_SAMPLES, "forward", False, False),
        # the lines after the update are known without a sample of backward
        (ONLY_UPDATES, 46, None, 1, "forward", False, True),
        (ONLY_UPDATES, 50, None, 1, "other", False, False),
        ([], 40, None, MIN_REST_SAMPLES, "other", False, True),  # no sample has shown which lines train
    ],
)
def test_each_line_of_a_loop(
    loop: list[tuple[int, str]], line: int, below: str | None, count: int, phase: str, measured: bool, unsure: bool
) -> None:
    last = sample(line, below, loop, count)
    assert (last.phase, last.excluded, last.unsure) == (phase, measured, unsure)


@pytest.mark.parametrize(
    ("in_update", "in_module", "phase"),
    [(1, 40, "other"), (1, 8, "other"), (1, 7, "forward"), (2, 40, "other"), (6, 40, "forward")],
)
def test_one_torn_sample_does_not_make_an_update_of_a_line_that_logs(
    in_update: int, in_module: int, phase: str
) -> None:
    """Its outer frames were read on line 50, its inner ones in the update before; many show a second update."""
    loop = [(stack, 20) for stack in stacks_of(LOOP)]
    probes = (own(50, "", UPDATE), in_update), (own(50, "", MODULE), in_module)
    assert classified([*loop, *probes])[-1].phase == phase


@pytest.mark.parametrize(
    ("line", "torn", "in_data", "in_model", "phase"),
    [
        (45, 1, 400, 7, "data"),
        (45, 6, 400, 7, "data"),
        (45, 8, 400, 7, "forward"),
        (45, 1, 7, 7, "forward"),
        (45, 4, 400, 0, "forward"),  # the model runs nowhere else
        (44, 1, 400, 120, "data"),  # a line that takes no time itself
        (44, 9, 400, 120, "forward"),
    ],
)
def test_one_torn_sample_does_not_make_the_model_of_a_line_above_it(
    line: int, torn: int, in_data: int, in_model: int, phase: str
) -> None:
    """Its inner frames were read in the model below; many show that the line itself runs the model."""
    model, backward, update = stacks_of(LOOP[1:])
    augment, mixed = stacks_of([(45, "augment"), (line, "module")])
    loop = [(model, in_model), (backward, 20), (update, 20), (mixed, torn)]
    assert classified([*((stack, n) for stack, n in loop if n), (augment, in_data)])[-1].phase == phase


def test_what_python_runs_at_exit_is_of_no_step_however_long_it_takes() -> None:
    exits = Frame("/usr/lib/python3.11/threading.py", 1559, "_shutdown")
    lines = {str(line): own(line)[0] for line, _ in LOOP}
    steps = {f"{line} {below}": 1 for line, below in LOOP}
    found = by_names(steps | {"exits": 10 * len(LOOP)}, lines | BELOW | {"exits": exits})
    assert [sample.phase for sample in found.values()] == ["data", "forward", "backward", "optimizer"]


def test_markers_measure_before_backward_though_no_sample_is_in_a_fetch() -> None:
    made = last_of(*stacks_of([*LOOP[1:], (45, "augment")]), has_loader=True)
    assert (made.phase, made.excluded, made.moved_from) == ("data", True, "forward")


@pytest.mark.parametrize(
    ("source", "others", "phase"),
    [
        ("time.sleep(0.1)", [], "other"),  # before a sample has shown which lines train
        ("time.sleep(0.1)", [(own(47, "", BACKWARD), 1)], "data"),
        ("batch = queue.read(4)", [(own(47, "", BACKWARD), 1)], "data"),
    ],
)
def test_without_modules_a_wait_before_backward_is_no_forward_pass(
    source: str, others: list[tuple[list[Frame], int]], phase: str
) -> None:
    last = classified([*others, (own(40, source), 50)])[-1]
    assert (last.phase, last.unsure) == (phase, False)


@pytest.mark.parametrize(("above", "in_backward", "found"), [(9, 0, "forward"), (13, 0, "data"), (60, 10, "forward")])
def test_what_is_far_more_than_backward_is_no_forward_pass_without_modules(above, in_backward, found) -> None:
    frames = Trie()
    frames.add_frames(0, [Frame("train.py", 46, "main", "", True)])
    frames.add_frames(10, [Frame("train.py", 47, "main", "", True), BELOW["backward"]])
    stack = LoopStack("backward", [10, 11])  # as the hooks note it
    stacks = {(0,): above, **({tuple(stack.frames): in_backward} if in_backward else {})}
    assert by_ids(stacks, frames, [stack])[0].phase == found


def called(
    path: list[tuple[int, str]], loop: list[tuple[int, str | None]], first: int, function: str = "train"
) -> list[tuple[int, list[Frame]]]:
    """Samples of the lines of a loop in a function, called along a path of lines and functions, with their counts."""
    outer = [Frame("train.py", line, function, "", True) for line, function in path]
    inner = [[Frame("train.py", at, function, "", True), *([BELOW[below]] if below else [])] for at, below in loop]
    return [(first + n, [*outer, *each]) for n, each in enumerate(inner)]


@pytest.mark.parametrize(("backward", "excluded"), [(20, False), (70, True)])
def test_one_sample_of_backward_on_an_earlier_line_than_all_others_is_torn(backward: int, excluded: bool) -> None:
    """From the fetch to the first of them markers measure the forward pass; samples would divide a second one."""
    loop: list[tuple[int, str | None]] = [(27, "fetch"), (29, "module"), (29, "backward"), (32, "update")]
    rest, torn = called([(70, "main")], loop, backward), called([(70, "main")], [(28, "backward")], 1)
    _, forward, *_ = classified((stack, count) for count, stack in [*rest, *torn])
    assert (forward.phase, forward.excluded) == ("forward", excluded)


# -- the phase of a stack by its frames


USER = Frame("train.py", 1, "main", "", True)
OUR_FETCH = Frame("/x/tuimon/agent/hooks.py", 1, "tuimon_fetch")
OUR_BACKWARD = Frame("/x/tuimon/agent/hooks.py", 2, "tuimon_backward")
ENGINE = Frame(f"{TORCH}/autograd/__init__.py", 2, "backward")
WRAPPER = Frame(f"{TORCH}/optim/optimizer.py", 3, "wrapper")
CLIP = Frame(f"{TORCH}/nn/utils/clip_grad.py", 5, "clip_grad_norm_")
SCHEDULER = Frame(f"{TORCH}/optim/lr_scheduler.py", 6, "step")
ZERO_GRAD = Frame(f"{TORCH}/optim/optimizer.py", 7, "zero_grad")
NEW_OPTIMIZER = Frame(f"{TORCH}/optim/adam.py", 8, "__init__")
NEW_LAYER = Frame(f"{TORCH}/nn/modules/linear.py", 9, "reset_parameters")
OPTIMIZERS = Frame(f"{TORCH}/optim/adadelta.py", 411, "<module>")
COMPILE = Frame(f"{TORCH}/_dynamo/convert_frame.py", 12, "_compile")
IMPORT = Frame("<frozen importlib._bootstrap>", 1, "_find_and_load")


@pytest.mark.parametrize(
    "stack, phase",
    [
        ([USER, OUR_FETCH, USER], "data"),
        ([USER, FETCH], "data"),
        ([USER, OUR_FETCH, MODULE], "data"),  # a transform that is a module
        ([USER, OUR_BACKWARD], "backward"),
        ([USER, ENGINE], "backward"),
        ([USER, OUR_BACKWARD, MODULE], "backward"),  # checkpointing
        ([USER, WRAPPER], "optimizer"),
        ([USER, WRAPPER, USER, MODULE], "forward"),  # a closure
        ([USER, WRAPPER, USER, OUR_BACKWARD], "backward"),
        ([USER, MODULE, USER], "forward"),
        ([USER, COMPILE, USER], "forward"),  # of a model: it calls no module while it is compiled
        ([USER, OUR_BACKWARD, COMPILE], "backward"),
        ([USER, WRAPPER, COMPILE], "optimizer"),
        ([USER, CLIP], "rest"),
        ([USER, SCHEDULER], "rest"),
        ([USER, ZERO_GRAD], "rest"),
        ([USER, NEW_OPTIMIZER], "rest"),
        ([USER, NEW_LAYER], "rest"),
        ([USER, IMPORT, MODULE], "rest"),
        ([USER, IMPORT, OPTIMIZERS, WRAPPER], "rest"),  # a decorator has the name of what is around every step
        ([USER, IMPORT, USER, WRAPPER], "optimizer"),  # a script that trains while it is imported
        ([USER], "rest"),
        ([], "rest"),
    ],
)
def test_phase(stack, phase):
    trie = Trie()
    trie.add_frames(0, stack)
    assert trie.node(range(len(stack))).boundary == phase


# -- updates that the program writes itself: without an optimizer, what runs without gradients after backward


STEP = own(20, "loss = net(x)", MODULE), own(21, "loss.backward()", BACKWARD)
BLOCK = (22, 26)
UPDATED = own(24, "p -= lr * g", no_grad=BLOCK)
CALLED = own(24, "update(params)", Frame("train.py", 6, "update", "m.mul_(0.9).add_(g)", True), no_grad=BLOCK)


@pytest.mark.parametrize(
    ("stacks", "phase"),
    [
        ([UPDATED], "optimizer"),
        ([CALLED], "optimizer"),
        ([own(25, "p.grad = None", no_grad=BLOCK)], "optimizer"),
        ([own(27, "log(loss)")], "other"),  # with gradients
        ([own(19, "wanted = teacher(x)", no_grad=(19, 19))], "data"),  # before backward
        ([own(28, "optimizer.step()", UPDATE), CALLED], "other"),
    ],
)
def test_which_work_is_an_update(stacks: list[list[Frame]], phase: str) -> None:
    last = last_of(*STEP, *stacks)
    assert (last.phase, last.moved_from) == (phase, "other" if phase == "optimizer" else None)
    assert last_of(STEP[0], UPDATED, forward_only=True).phase == "other"  # a loop that does not train updates nothing


# -- what is done to a model before its forward pass is no data


def of_torch(file: str, function: str) -> Frame:
    return Frame(f"{TORCH}/{file}", 9, function)


@pytest.mark.parametrize(
    ("below", "phase"),
    [
        ([of_torch("optim/optimizer.py", "zero_grad")], "other"),
        ([of_torch("optim/sgd.py", "__init__")], "other"),
        ([of_torch("nn/modules/module.py", "load_state_dict")], "other"),
        ([of_torch("nn/modules/module.py", "zero_grad")], "other"),
        ([of_torch("nn/modules/linear.py", "__init__")], "other"),
        ([of_torch("nn/init.py", "kaiming_uniform_")], "other"),
        # a batch that is made, what a data set does with a model
        ([], "data"),
        ([of_torch("nn/utils/rnn.py", "pad_sequence")], "data"),
        ([FETCH, Frame("train.py", 5, "__getitem__", "", True), of_torch("nn/modules/linear.py", "__init__")], "data"),
        # such as a hook that makes the next batch: the innermost of the user's lines decides
        ([of_torch("nn/modules/module.py", "__getattr__"), Frame("train.py", 5, "make", "", True)], "data"),
    ],
)
def test_a_model_that_is_made_loaded_or_cleared_is_no_data(below: list[Frame], phase: str) -> None:
    assert last_of(*STEP, own(19, "", *below), count=100).phase == phase
