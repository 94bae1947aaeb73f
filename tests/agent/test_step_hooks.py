"""Hooks around an optimizer's step that may be removed at any moment."""

from __future__ import annotations

import sys

import pytest

from tuimon.agent.process.training_facts import any_made
from tuimon.agent.torch_compat import rebinding

pytest.importorskip("torch")
import torch
from torch.optim import optimizer


def test_a_hook_that_was_removed_in_a_step_beside_anothers_is_not_called():
    called = []
    rebinding.add_step_hooks(optimizer, lambda *_: None, lambda *_: called.append("end"))
    handle = optimizer.register_optimizer_step_post_hook(lambda *_: None)
    sgd = torch.optim.SGD([torch.zeros(1)])

    def closure():
        rebinding.undo_all()
        return 0.0

    sgd.step(closure)
    sgd.step()
    assert called == []
    handle.remove()
    rebinding.sweep()
    assert not optimizer._global_optimizer_post_hooks


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
