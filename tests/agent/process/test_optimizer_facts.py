"""What is known of the optimizers that a training steps."""

import gc
import weakref

import pytest

from tests.agent.programs import meta_of
from tuimon.agent import pace
from tuimon.agent.process import optimizer_facts

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def none_known():
    optimizer_facts.forget()
    yield
    optimizer_facts.forget()


def step(*optimizers):
    """Let each make an update of all its parameters."""
    for optimizer in optimizers:
        sum(p.sum() for group in optimizer.param_groups for p in group["params"] if p.requires_grad).backward()
        optimizer.step()


def described(runtime):
    """What the ring says of the optimizers."""
    return meta_of(runtime).get("optimizers", [])


def test_what_is_published_of_an_optimizer(hooked):
    model = torch.nn.Linear(8, 4)
    model.bias.requires_grad_(False)
    step(torch.optim.AdamW(model.parameters(), fused=False))
    (found,) = described(hooked)
    counted = {"groups": 1, "tensors": 1, "elements": 32}
    assert found == {"name": "AdamW", "package": "torch", "fused": False, **counted}


def test_a_setting_that_is_left_to_torch_is_unknown(hooked, weight):
    step(torch.optim.SGD([weight], lr=0.1))
    (found,) = described(hooked)
    assert "fused" not in found


def test_several_that_take_turns_are_read_once_each(hooked, monkeypatch):
    plain, read = optimizer_facts.describe, []
    monkeypatch.setattr(optimizer_facts, "describe", lambda *args: (read.append(args[0]), plain(*args)))
    pair = [kind([torch.nn.Parameter(torch.ones(3))], lr=0.1) for kind in (torch.optim.SGD, torch.optim.RMSprop)]
    for _ in range(100):
        step(*pair)
    assert read == pair
    assert [found["name"] for found in described(hooked)] == ["SGD", "RMSprop"]


def test_one_whose_updates_are_never_at_a_boundary_at_which_facts_are_due(hooked, weight):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(20):
        for _ in range(4):  # accumulated: every fifth boundary is an update
            weight.sum().backward()
        optimizer.step()
    assert [found["name"] for found in described(hooked)] == ["SGD"]


def test_one_that_begins_to_step_late(hooked, monkeypatch, weight):
    monkeypatch.setattr(pace, "SHORTEST", 10**9)  # every update is seen
    first = torch.optim.SGD([weight], lr=0.1)
    for _ in range(40):
        step(first)
    assert not hooked.facts_due
    second = torch.optim.Adam([weight])
    for _ in range(400):
        step(second)
    assert [found["name"] for found in described(hooked)] == ["SGD", "Adam"]
    assert not hooked.facts_due


def test_many_optimizers_are_not_all_described(hooked):
    many = [torch.optim.SGD([torch.nn.Parameter(torch.ones(n))], lr=0.1) for n in range(1, 9)]
    for _ in range(10):
        step(*many)
    assert [found["elements"] for found in described(hooked)] == [1, 2, 3, 4]
    assert not optimizer_facts.is_new(many[-1])


def test_one_that_is_gone_gives_way_to_another():
    weights = [torch.nn.Parameter(torch.ones(n)) for n in range(1, 7)]
    kept = [torch.optim.SGD([weight], lr=0.1) for weight in weights[:3]]
    for optimizer in kept:
        assert optimizer_facts.note(optimizer)
    for weight in weights[3:]:
        assert optimizer_facts.note(torch.optim.SGD([weight], lr=0.1))
        gc.collect()
    assert [found["elements"] for found in optimizer_facts.facts()["optimizers"]] == [1, 2, 3, 6]


def test_nothing_of_an_optimizer_is_kept_alive(hooked):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(3))])
    step(optimizer)
    left = [weakref.ref(optimizer), weakref.ref(optimizer.param_groups[0]["params"][0])]
    assert described(hooked)
    del optimizer
    gc.collect()
    assert [reference() for reference in left] == [None, None]


def test_a_wrapper_does_not_hide_the_optimizer(hooked, weight):
    class Wrapper(torch.optim.Optimizer):
        """As accelerate's: it is an optimizer, and never was made as one."""

        def __init__(self, optimizer):
            self.optimizer = optimizer

        @property
        def param_groups(self):
            return self.optimizer.param_groups

        def step(self, closure=None):
            self.optimizer.step(closure)

    scaler = torch.amp.GradScaler("cpu")
    wrapped = Wrapper(torch.optim.SGD([weight], lr=0.1))
    weight.sum().backward()
    wrapped.step()
    scaler.scale(weight.sum()).backward()
    scaler.step(wrapped.optimizer)
    assert [found["name"] for found in described(hooked)] == ["SGD"]


def test_more_tensors_than_can_be_counted_are_unknown(monkeypatch, weight):
    monkeypatch.setattr(optimizer_facts, "TENSORS_LIMIT", 1)
    optimizer_facts.note(torch.optim.SGD([weight, torch.nn.Parameter(torch.ones(2))], lr=0.1))
    (found,) = optimizer_facts.facts()["optimizers"]
    assert found["name"] == "SGD"
    assert "tensors" not in found


def test_an_optimizer_of_another_kind_harms_nothing(weight):
    assert not optimizer_facts.note(object())
    assert optimizer_facts.facts() == {}
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.param_groups = None
    optimizer_facts.note(optimizer)
    assert optimizer_facts.facts()["optimizers"] == [{"name": "SGD", "package": "torch"}]
