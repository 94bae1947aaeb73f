"""Loops that a library owns: its callbacks are side work, whichever line they are called from."""

from __future__ import annotations

from tests.session.stacks.classified import last_of
from tuimon.records import Frame

SITE = "/v/lib/python3.11/site-packages"
FRAMES = {
    "main": Frame("train.py", 37, "main", "trainer.run(loader)", True),
    "run": Frame(f"{SITE}/ignite/engine/engine.py", 1056, "run"),
    "fire": Frame(f"{SITE}/ignite/engine/engine.py", 453, "_fire_event"),
    "fetch": Frame(f"{SITE}/torch/utils/data/dataloader.py", 1, "__next__"),
    "loss": Frame("train.py", 22, "update", "loss = cost(net(x), y)", True),
    "backward line": Frame("train.py", 23, "update", "loss.backward()", True),
    "module": Frame(f"{SITE}/torch/nn/modules/module.py", 2, "_call_impl"),
    "backward": Frame(f"{SITE}/torch/_tensor.py", 3, "backward"),
    "environment": Frame(f"{SITE}/gymnasium/core.py", 576, "step"),
    "wrapper": Frame("train.py", 50, "observation", "return draw(state)", True),
    "after": Frame("train.py", 32, "after", "histogram(net)", True),
    "histogram": Frame("train.py", 44, "histogram", "bins[int(v)] += 1", True),
}
TRAINING = ["main run fetch", "main run loss module", "main run backward line/backward"]


def phase_of(stack: str, others: list[str], has_loader: bool = False) -> str:
    """The phase of a stack among others; frames by name, root first."""

    def named(each: str) -> list[Frame]:
        return [FRAMES[name.replace("_", " ")] for name in each.replace("backward line/", "backward_line ").split()]

    return last_of(*map(named, [*others, stack]), has_loader=has_loader).phase


def test_a_wrapper_of_an_environment_that_a_library_steps_makes_the_data() -> None:
    training = ["main run module", "main run backward", "main run environment"]
    assert phase_of("main run environment wrapper", training) == "data"
    assert phase_of("main run fire after", [*TRAINING, "main run environment"]) == "other"


def test_without_a_loader_a_function_that_the_library_calls_may_make_the_data() -> None:
    assert phase_of("main run fire after histogram", [each for each in TRAINING if "fetch" not in each]) == "data"


def test_markers_tell_of_a_loader_whose_fetches_no_sample_has_seen() -> None:
    others = [each for each in TRAINING if "fetch" not in each]
    assert phase_of("main run fire after histogram", others, has_loader=True) == "other"


def test_a_call_of_the_users_own_on_the_line_that_trains_is_no_callback() -> None:
    """``step(histogram())``: what is called before the step makes its data."""
    others = ["main fetch", "main loss module", "main backward line/backward"]
    assert phase_of("main after histogram", others) == "data"


def test_what_a_library_does_between_update_and_fetch_is_side_work_though_it_is_on_the_line_that_fetches() -> None:
    """``trainer.run(loader)`` fetches, runs the model and calls backward: its number tells nothing."""
    others = ["main run fetch", "main run module", "main run backward"]
    assert phase_of("main run fire", others) == "other"
    assert phase_of("main", others) == "forward"  # the old batch is freed
