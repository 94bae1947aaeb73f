"""The three boundaries, what is marked of them, and where a step begins."""

import pytest

from tests.agent.batches import Batches
from tests.agent.programs import is_ours
from tuimon.agent.loading import loader_facts
from tuimon.agent.outside import HIDES_FRAMES
from tuimon.agent.ring import layout
from tuimon.agent.steps import StepCounter

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

BACKWARD = [layout.BACKWARD_BEGIN, layout.BACKWARD_END]
OPTIMIZER = [layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END]


def kinds(markers):
    return [kind for kind, _, _ in markers]


def test_a_step(recorded, weight):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for batch in DataLoader(Batches(2)):
        (weight * batch).sum().backward()
        optimizer.step()
    step = [layout.FETCH_BEGIN, layout.FETCH_END, *BACKWARD, *OPTIMIZER]
    assert kinds(recorded) == [*step, *step, layout.FETCH_BEGIN, layout.FETCH_END]
    assert [flag for kind, _, flag in recorded if kind == layout.FETCH_END] == [0, 0, 1]


def test_every_iterator_has_its_own_number(recorded):
    loader = DataLoader(Batches(1))
    for _ in range(3):
        iterator = iter(loader)
        next(iterator)
        del iterator  # the next may come to lie at the same address
    pairs = [(value, flag) for kind, value, flag in recorded if kind in (layout.FETCH_BEGIN, layout.FETCH_END)]
    numbers = [value for value, _ in pairs]
    assert numbers[0::2] == numbers[1::2] and len(set(numbers)) == 3 and 0 not in numbers


def test_workers_that_are_ended_within_an_epoch(recorded):
    iterator = iter(DataLoader(Batches(4), num_workers=1))
    next(iterator)
    del recorded[:]
    number = loader_facts.numbers[id(iterator)]
    del iterator
    assert [marker[:2] for marker in recorded] == [(layout.ITER_BEGIN, number), (layout.ITER_END, 0)]


def test_workers_that_begin_anew(recorded):
    loader = DataLoader(Batches(1), num_workers=1, persistent_workers=True)
    for _ in range(2):
        assert len(list(loader)) == 1
    assert kinds(recorded) == ([layout.ITER_BEGIN, layout.ITER_END] + [layout.FETCH_BEGIN, layout.FETCH_END] * 2) * 2
    assert len({value for kind, value, _ in recorded if kind != layout.ITER_BEGIN}) == 1


@pytest.mark.skipif(not HIDES_FRAMES, reason="needs Python 3.11")
def test_workers_that_cannot_be_started(recorded, monkeypatch):
    def failing(process):
        raise OSError("no more processes")

    monkeypatch.setattr("multiprocessing.context.Process._Popen", staticmethod(failing))
    with pytest.raises(OSError, match="no more processes") as caught:
        iter(DataLoader(Batches(1), num_workers=1))
    assert not any(is_ours(entry.path) for entry in caught.traceback)
    assert recorded == [(layout.ITER_BEGIN, 0, 0), (layout.ITER_END, 0, 0)]


def test_backward_and_both_kinds_of_grad(recorded, weight):
    (weight * 2).sum().backward()
    torch.autograd.backward((weight * 2).sum())
    torch.autograd.grad((weight * 2).sum(), weight)
    assert kinds(recorded) == BACKWARD * 3
    assert [value for _, value, _ in recorded] == [0, 0, 0, 0, layout.RETURNED, layout.RETURNED]


def test_a_failing_backward_ends(recorded, weight):
    with pytest.raises(RuntimeError, match="scalar outputs"):
        (weight * 2).backward()
    loss = (weight * weight).sum()
    loss.backward()
    recorded.clear()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    assert kinds(recorded) == BACKWARD


def test_steps_carry_their_optimizer(recorded, weight):
    first, second = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))

    def closure():
        raise FloatingPointError("nan")

    with pytest.raises(FloatingPointError):
        first.step(closure)
    second.step()
    first.step()
    assert recorded == [
        (layout.OPTIMIZER_BEGIN, id(first), 0),  # no end: torch runs no post hook for a step that raises
        (layout.OPTIMIZER_BEGIN, id(second), 0),
        (layout.OPTIMIZER_END, id(second), 0),
        (layout.OPTIMIZER_BEGIN, id(first), 0),
        (layout.OPTIMIZER_END, id(first), 0),
    ]


def test_a_scaler_that_skips_its_step_counts(recorded, weight):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for factor in (1.0, float("inf")):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    taken = [layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END, layout.OPTIMIZER_END]
    assert kinds(recorded) == [*BACKWARD, *taken, *BACKWARD, *OPTIMIZER]


KINDS = {
    "f": (layout.FETCH_BEGIN, layout.FETCH_END),
    "b": (layout.BACKWARD_BEGIN, layout.BACKWARD_END),
    "o": (layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END),
    "s": (layout.STEP,),
}


def begins(loop: str) -> str:
    """The loop with a bar before each event that begins a step; after it, if it is ``tuimon.step()``."""
    counter, out = StepCounter(), ""
    for letter in loop:
        found = [counter.begins_step(kind) for kind in KINDS[letter]]
        out += letter if not any(found) else letter + "|" if letter == "s" else "|" + letter
    return out


@pytest.mark.parametrize(
    "loop",
    [
        "bo|fbo|fbo|fbo",  # taken up at the end of a backward
        "bo|fbfbo|fbfbo|fb",  # gradient accumulation
        "bo|fbobo|fbobo|fbobo",  # two updates on one batch
        "bo|fbo|ffffffbo|fbo",  # evaluation goes with the step after it
        "bo|bo|bo|bo",
        "bbo|bbo|bbo",
        "boo|boo|boo",
        "s|bos|bos|bo",
    ],
)
def test_where_steps_begin(loop):
    assert begins(loop.replace("|", "")).split("|")[-2:] == loop.split("|")[-2:]


def test_without_an_optimizer_each_backward_ends_a_step():
    assert begins("b" * 20).endswith("b|b|b|b")
