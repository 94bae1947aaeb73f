"""Whether the program has an optimizer is seen before that has made a step."""

import sys

import pytest

from tuimon.agent.process.optimizer_facts import any_made

torch = pytest.importorskip("torch")


def test_an_optimizer_is_seen_once_it_is_made(monkeypatch, weight):
    class Family(torch.optim.Optimizer):
        pass

    class Own(Family):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self, closure=None):
            return None

    monkeypatch.setattr(sys.modules["torch.optim.optimizer"], "Optimizer", Family)
    assert not any_made()
    Own([weight])
    assert any_made()


def test_without_torch_there_is_none(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.optim.optimizer")
    assert not any_made()
