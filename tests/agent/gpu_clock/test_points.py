"""Places inside a backward pass: torch calls back at them, and nothing of it is left afterwards."""

import copy
import gc
from types import SimpleNamespace

import pytest

from tuimon.agent.gpu_clock import points
from tuimon.agent.gpu_clock.points import MOST, GradientPoints, see_optimizer

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(points, "_optimizer", None)


def training(layers=12):
    torch.manual_seed(3)
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(layers)))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def step(model, optimizer, around=lambda: None):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().sum()
    around()
    loss.backward()
    optimizer.step()


def hooks_of(model):
    return [parameter._post_accumulate_grad_hooks for parameter in model.parameters()]


def armed(model, optimizer, count=4):
    see_optimizer(optimizer)
    found, reached = GradientPoints(), []
    grads = list(model.parameters())
    return found, reached, lambda: found.arm(lambda: reached.append(sum(p.grad is not None for p in grads)), count)


def test_they_are_spread_over_the_backward_pass():
    model, optimizer = training()
    found, reached, arm = armed(model, optimizer)
    step(model, optimizer, arm)
    assert len(reached) == 4
    assert reached == sorted(reached)  # of 24 gradients, so many were there
    assert [count // 6 for count in reached] == [0, 1, 2, 3]
    found.disarm()
    step(model, optimizer)
    assert len(reached) == 4


def test_nothing_is_left_on_the_parameters():
    model, optimizer = training()
    found, _, arm = armed(model, optimizer)
    plain = hooks_of(model)
    step(model, optimizer, arm)
    assert hooks_of(model) != plain
    found.disarm()
    assert hooks_of(model) == plain == [None] * 24
    assert hooks_of(copy.deepcopy(model)) == plain


def test_hooks_of_the_program_stay():
    model, optimizer = training()
    called = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(called.append)
    found, reached, arm = armed(model, optimizer)
    step(model, optimizer, arm)
    found.disarm()
    step(model, optimizer)
    assert len(called) == 2 * 24
    assert len(reached) == 4


def test_results_are_the_same_bit_for_bit():
    def weights(watched):
        model, optimizer = training()
        found, _, arm = armed(model, optimizer, MOST)
        for _ in range(5):
            step(model, optimizer, arm if watched else lambda: None)
            found.disarm()
        return [parameter.detach().clone() for parameter in model.parameters()], torch.get_rng_state()

    plain, watched = weights(False), weights(True)
    assert all(torch.equal(a, b) for a, b in zip(plain[0], watched[0], strict=True))
    assert torch.equal(plain[1], watched[1])


def test_frozen_parameters_and_small_models():
    model, optimizer = training(layers=1)
    model[0].bias.requires_grad_(False)
    found, reached, arm = armed(model, optimizer)
    step(model, optimizer, arm)
    found.disarm()
    assert len(reached) == 1


def test_an_optimizer_that_is_gone_keeps_nothing_alive():
    model, optimizer = training()
    see_optimizer(optimizer)
    found = GradientPoints()
    assert found.arm(lambda: None, 4)
    found.disarm()
    del model, optimizer
    gc.collect()
    assert points._optimizer() is None
    assert not found.arm(lambda: None, 4)


def test_a_compiled_backward_pass_is_left_alone(monkeypatch):
    model, optimizer = training()
    _, _, arm = armed(model, optimizer)
    compiled = SimpleNamespace(compiled_autograd_enabled=True)
    monkeypatch.setitem(points.sys.modules, "torch._dynamo.compiled_autograd", compiled)
    assert not arm()
    assert hooks_of(model) == [None] * 24


def test_a_torch_without_such_hooks_has_no_points():
    class Parameter:
        requires_grad = True

    class Optimizer:
        param_groups = ({"params": [Parameter()]},)

    optimizer = Optimizer()
    see_optimizer(optimizer)
    found = GradientPoints()
    assert not found.arm(lambda: None, 4)
    assert not found._on
