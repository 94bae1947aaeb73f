"""The phase of a stack by its frames."""

import pytest

from tuimon.records import Frame
from tuimon.session.stacks.trie import Trie

TORCH = "/lib/python3.11/site-packages/torch"
USER = Frame("train.py", 1, "main", "", True)
FETCH = Frame("/x/tuimon/agent/hooks.py", 1, "tuimon_fetch")
BACKWARD = Frame("/x/tuimon/agent/hooks.py", 2, "tuimon_backward")
PLAIN_BACKWARD = Frame(f"{TORCH}/autograd/__init__.py", 2, "backward")
PLAIN_FETCH = Frame(f"{TORCH}/utils/data/dataloader.py", 2, "__next__")
STEP = Frame(f"{TORCH}/optim/optimizer.py", 3, "wrapper")
MODULE = Frame(f"{TORCH}/nn/modules/module.py", 4, "_call_impl")
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
        ([USER, FETCH, USER], "data"),
        ([USER, PLAIN_FETCH], "data"),
        ([USER, FETCH, MODULE], "data"),  # a transform that is a module
        ([USER, BACKWARD], "backward"),
        ([USER, PLAIN_BACKWARD], "backward"),
        ([USER, BACKWARD, MODULE], "backward"),  # checkpointing
        ([USER, STEP], "optimizer"),
        ([USER, STEP, USER, MODULE], "forward"),  # a closure
        ([USER, STEP, USER, BACKWARD], "backward"),
        ([USER, MODULE, USER], "forward"),
        ([USER, COMPILE, USER], "forward"),  # of a model: it calls no module while it is compiled
        ([USER, BACKWARD, COMPILE], "backward"),
        ([USER, STEP, COMPILE], "optimizer"),
        ([USER, CLIP], "rest"),
        ([USER, SCHEDULER], "rest"),
        ([USER, ZERO_GRAD], "rest"),
        ([USER, NEW_OPTIMIZER], "rest"),
        ([USER, NEW_LAYER], "rest"),
        ([USER, IMPORT, MODULE], "rest"),
        ([USER, IMPORT, OPTIMIZERS, STEP], "rest"),  # a decorator has the name of what is around every step
        ([USER, IMPORT, USER, STEP], "optimizer"),  # a script that trains while it is imported
        ([USER], "rest"),
        ([], "rest"),
    ],
)
def test_phase(stack, phase):
    trie = Trie()
    trie.add_frames(0, stack)
    assert trie.node(range(len(stack))).boundary == phase
