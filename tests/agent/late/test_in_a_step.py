"""The agent installed and withdrawn while a step is under way: the training comes out as without it."""

import sys
import threading

import pytest

from tests.agent.batches import Batches
from tuimon.agent import late, runtime
from tuimon.agent.torch_compat import rebinding

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

pytestmark = pytest.mark.trust


class Everywhere(torch.autograd.Function):
    """Calls ``at`` from inside a backward."""

    @staticmethod
    def forward(ctx, value, at):
        ctx.at = at
        return value * 1

    @staticmethod
    def backward(ctx, slope):
        ctx.at()
        return slope, None


class Calling:
    """A data set that calls something at one of its items."""

    def __init__(self, at):
        self.at = at

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 3:
            self.at()
        return torch.tensor(float(index))


PLACES = ("fetch", "backward", "before the step", "after the step")


def trained(place, action):
    """Weights after eight steps, ``action`` called once at a place of one of them; and the user's own hook's calls."""
    calls, due = [], [True]

    def at():
        if due and len(calls) >= 2:
            due.pop()
            action()

    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    module = sys.modules["torch.optim.optimizer"]  # torch.optim hides it

    def after(*_):
        calls.append(1)
        if place == "after the step":
            at()

    handles = [
        module.register_optimizer_step_pre_hook(lambda *_: at() if place == "before the step" else None),
        module.register_optimizer_step_post_hook(after),
        module.register_optimizer_step_pre_hook(lambda *_: None),
        module.register_optimizer_step_post_hook(lambda *_: None),
    ]
    try:
        for batch in DataLoader(Calling(at if place == "fetch" else lambda: None)):
            optimizer.zero_grad()
            Everywhere.apply((weight * batch).sum(), at if place == "backward" else lambda: None).backward()
            optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    assert not due
    return weight.detach().clone(), len(calls)


@pytest.mark.parametrize("place", PLACES)
def test_withdrawn_in_the_midst_of_a_step(rings, place):
    """Also where torch is going through its step hooks, of which some are the user's."""
    expected = trained(place, lambda: None)
    late.install_now(rings)
    got = trained(place, late.withdraw)
    assert torch.equal(got[0], expected[0]) and got[1] == expected[1]
    assert not runtime.on


@pytest.mark.parametrize("place", PLACES)
def test_installed_in_the_midst_of_a_step(rings, place):
    answers = []
    expected = trained(place, lambda: None)
    got = trained(place, lambda: answers.append(late.install_now(rings)["status"]))
    assert torch.equal(got[0], expected[0]) and got[1] == expected[1]
    assert answers == [late.RETRY if "step" in place else late.INSTALLED]


def test_with_no_hooks_but_ours_a_step_is_no_hindrance(rings, weight):
    """LBFGS and Lightning compute inside the optimizer's step."""
    optimizer, seen = torch.optim.LBFGS([weight], max_iter=3), []

    def closure():
        seen.append((rebinding.must_wait(), late.install_now(rings)["status"]))
        optimizer.zero_grad()
        loss = weight.pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert seen[0] == (False, late.INSTALLED)
    optimizer.step(lambda: (late.withdraw(), closure())[1] if runtime.on else closure())


def test_from_another_thread_while_it_trains(rings):
    """Installed and withdrawn again and again beside a loop: the weights come out as without."""

    def train(steps):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        done = 0
        while done < steps:
            for batch in DataLoader(Batches(7)):
                optimizer.zero_grad()
                model(torch.full((2, 4), float(batch))).pow(2).sum().backward()
                optimizer.step()
                done += 1
        return [parameter.detach().clone() for parameter in model.parameters()]

    expected, statuses, over = train(700), [], threading.Event()

    def toggle():
        while not over.is_set():
            statuses.append(late.install_now(rings)["status"])
            late.withdraw()

    thread = threading.Thread(target=toggle)
    thread.start()
    try:
        got = train(700)
    finally:
        over.set()
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert set(statuses) == {late.INSTALLED}


def test_compiled_code_is_not_compiled_anew(rings):
    """Nor for a compiled optimizer, which looks at torch's step hooks when it is compiled."""
    from torch._dynamo.testing import CompileCounter

    counter, model = CompileCounter(), torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    forward, step = torch.compile(model, backend=counter), torch.compile(optimizer.step, backend=counter)
    compiled = []
    for change in (lambda: None, lambda: late.install_now(rings), late.withdraw):
        change()
        for _ in range(3):
            optimizer.zero_grad()
            forward(torch.ones(2, 4)).sum().backward()
            step()
        compiled.append(counter.frame_count)
    assert compiled[0] > 0 and compiled == [compiled[0]] * 3
