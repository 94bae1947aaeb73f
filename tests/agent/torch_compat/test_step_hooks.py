"""Hooks around an optimizer's step that may be off for a while, and removed at any moment."""

import pytest

from tuimon.agent.torch_compat import rebinding, step_hooks

pytest.importorskip("torch")
import torch
from torch.optim import optimizer


def test_a_hook_that_is_off_is_not_called():
    called = []
    begin, end = step_hooks.add(optimizer, lambda *_: called.append("begin"), lambda *_: called.append("end"))
    sgd = torch.optim.SGD([torch.zeros(1)])
    end.off()
    sgd.step()
    end.on()
    begin.off()
    sgd.step()
    rebinding.undo_all()
    assert called == ["begin", "end"]


def test_a_hook_that_was_removed_in_a_step_beside_anothers_stays_off():
    called = []
    _, end = step_hooks.add(optimizer, lambda *_: None, lambda *_: called.append("end"))
    handle = optimizer.register_optimizer_step_post_hook(lambda *_: None)
    sgd = torch.optim.SGD([torch.zeros(1)])

    def closure():
        rebinding.undo_all()
        end.on()
        return 0.0

    sgd.step(closure)
    sgd.step()
    assert called == []
    handle.remove()
    step_hooks.sweep()
    assert not optimizer._global_optimizer_post_hooks
