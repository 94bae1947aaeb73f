"""Loops of all shapes that a gap may begin and end in."""

import threading

import pytest
import torch
from torch import autograd
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from tests.agent.batches import Batches
from tuimon import phase, step
from tuimon.agent import pace, runtime
from tuimon.agent.ring.writer import RingWriter
from tuimon.agent.steps import TokenBucket


def gaps_always(monkeypatch, steps):
    """Whatever a step takes, and so on a busy machine as on an idle one; the loop begins anew."""
    monkeypatch.setattr(pace, "LONGEST_NS", 10**15)
    monkeypatch.setattr(pace, "SPELL", 5)
    monkeypatch.setattr(pace, "FIRST", 12)
    monkeypatch.setattr(TokenBucket, "steps_owed", lambda bucket: steps)
    monkeypatch.setattr(RingWriter, "random", lambda writer: 0.5)
    monkeypatch.setattr(runtime, "CHECK_STEPS", 10**9)  # another optimizer is no reason to time all steps for a while
    pace.pace.leave()


class Loop:
    """A parameter to train, and what the shapes below have in common."""

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.optimizer = self.sgd()

    def sgd(self):
        return torch.optim.SGD([self.weight], lr=1e-3)

    def backward(self, batch=1.0):
        (self.weight * batch).sum().backward()

    def step(self, batch=1.0):
        self.backward(batch)
        self.optimizer.step()


def bare(loop):
    for _ in range(300):
        loop.step()


def epochs(loop):
    loader = DataLoader(Batches(70))
    for _ in range(5):
        for batch in loader:
            loop.step(batch)


def evaluate(loop, batches):
    for batch in DataLoader(Batches(batches)):
        (loop.weight * batch).sum()


def evaluated(loop):
    """For a few batches and for many: their fetches are only counted as well."""
    train = DataLoader(Batches(60))
    for batches in (7, 150, 7, 150):
        for batch in train:
            loop.step(batch)
        evaluate(loop, batches)


def evaluated_between_bare_steps(loop):
    for batches in (1, 2, 3, 4, 5, 6):
        for _ in range(150):
            loop.step()
        evaluate(loop, batches)


def evaluated_in_part(loop):
    """An iterator over held-out batches that lives on, and one batch in the middle that trains."""
    train, held_out = DataLoader(Batches(60)), iter(DataLoader(Batches(200)))
    for number, batch in enumerate(train):
        loop.step(batch)
        if number % 20 == 19:
            for at in range(50):
                loss = (loop.weight * next(held_out)).sum()
                if at == 25:
                    loss.backward()


def accumulated(loop):
    """Three backwards an update, and later five."""
    for number, batch in enumerate(DataLoader(Batches(600))):
        loop.backward(batch)
        if number % (3 if number < 300 else 5) == 0:
            loop.optimizer.step()


def closures(loop):
    """Two backwards inside each optimizer step, of batches from a loader."""
    for batch in DataLoader(Batches(200)):

        def closure(batch=batch):
            loop.backward(batch)
            loop.backward(batch)

        loop.optimizer.step(closure)


def failing_now_and_then(loop):
    for number, batch in enumerate(DataLoader(Batches(300))):
        loop.step(batch)
        if number % 60 == 59:
            with pytest.raises(RuntimeError):
                loop.weight.detach().sum().backward()


def a_loader_that_fails(loop):
    for _ in range(2):
        with pytest.raises(ValueError, match="bad item"):
            for batch in DataLoader(Batches(90, bad=83)):
                loop.step(batch)


def several_optimizers_now_and_then(loop):
    """Made in one update by one of them, in the next by both."""
    other = loop.sgd()
    for number in range(300):
        loop.step()
        if number % 2:
            other.step()


def two_batches_a_step(loop):
    """Such as support and query."""
    batches = iter(DataLoader(Batches(400)))
    for batch in batches:
        loop.step(batch + next(batches))


def skipped_by_a_scaler(loop):
    scaler = torch.amp.GradScaler("cpu", growth_interval=10**6)
    for number in range(200):
        loop.optimizer.zero_grad()
        if number % 40 == 39:
            scaler.scale((loop.weight * float("inf")).sum()).backward()
            scaler.step(loop.optimizer)
            scaler.update()
        else:
            loop.step()


def a_range_after_a_backward_now_and_then(loop):
    for number in range(300):
        loop.backward()
        if number % 45 == 44:
            with phase("clip"):
                loop.weight.sum()
        loop.optimizer.step()


def another_thread_after_a_backward(loop):
    """Between a backward of this one and its update."""

    def train_once():
        other.step()

    other = Loop()
    for number, batch in enumerate(DataLoader(Batches(400))):
        loop.backward(batch)
        if number % 45 == 44:
            thread = threading.Thread(target=train_once)
            thread.start()
            thread.join(60)
        loop.optimizer.step()


def two_models_in_turn(loop):
    """As in a GAN without a DataLoader: two updates make a step."""
    other = loop.sgd()
    for _ in range(200):
        loop.step()
        loop.backward()
        other.step()


def updated_often(loop):
    """Each batch trains many times; the loop goes from fetch to fetch."""
    for batch in DataLoader(Batches(100)):
        for _ in range(10):
            loop.step(batch)


def checkpointed(loop):
    """Its backward runs others inside it."""
    for batch in DataLoader(Batches(200)):
        value = loop.weight * batch
        for _ in range(2):
            value = checkpoint(torch.sin, value, use_reentrant=True)
        value.sum().backward()
        loop.optimizer.step()


def two_loaders(loop):
    for batch, other in zip(DataLoader(Batches(150)), DataLoader(Batches(150))):  # noqa: B905 (Python 3.9)
        loop.step(batch + other)


def steps_marked(loop):
    """By ``tuimon.step()``, two updates each."""
    for _ in range(150):
        loop.step()
        loop.step()
        step()


def steps_marked_before_the_update(loop):
    for batch in DataLoader(Batches(200)):
        loop.backward(batch)
        step()
        loop.optimizer.step()


def ranges_in_every_step(loop):
    for batch in DataLoader(Batches(100)):
        with phase("forward"):
            loop.backward(batch)
        loop.optimizer.step()


def wrapped(loop):
    """The program has a function of its own around our hook."""
    ours, modules = autograd._engine_run_backward, (autograd, autograd.graph)

    def theirs(*args, **kwargs):
        return ours(*args, **kwargs)

    for module in modules:
        module._engine_run_backward = theirs
    bare(loop)
    for module in modules:
        module._engine_run_backward = ours


#: Each with the steps that it makes.
SHAPES = {
    bare: 300,
    wrapped: 300,
    epochs: 350,
    evaluated: 240,
    evaluated_between_bare_steps: 900,
    evaluated_in_part: 60,
    accumulated: 160,
    closures: 200,
    failing_now_and_then: 300,
    a_loader_that_fails: 166,
    several_optimizers_now_and_then: 300,
    two_batches_a_step: 200,
    skipped_by_a_scaler: 200,
    a_range_after_a_backward_now_and_then: 300,
    another_thread_after_a_backward: 400,
    two_models_in_turn: 200,
    updated_often: 1000,
    checkpointed: 200,
    two_loaders: 150,
    steps_marked: 150,
    steps_marked_before_the_update: 200,
    ranges_in_every_step: 100,
}
