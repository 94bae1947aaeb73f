"""Hooks around an optimizer's step that may be removed at any moment."""

import pytest

from tuimon.agent.torch_compat import rebinding

pytest.importorskip("torch")
import torch
from torch.optim import optimizer


def test_a_hook_is_called_until_it_is_removed():
    called = []
    rebinding.add_step_hooks(optimizer, lambda *_: called.append("begin"), lambda *_: called.append("end"))
    sgd = torch.optim.SGD([torch.zeros(1)])
    sgd.step()
    rebinding.undo_all()
    sgd.step()
    assert called == ["begin", "end"]


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
