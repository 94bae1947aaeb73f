"""Gradients that backward computes and no optimizer holds: in which loops they are found, and how many."""

import copy
import gc
import weakref

import pytest

from tests.agent.programs import meta_of
from tuimon.agent.process import training_facts

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

X = torch.ones(2, 4)


def sgd(*modules):
    return torch.optim.SGD([each for module in modules for each in module.parameters()], lr=0.1)


def encoder():
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def loop(loss, *optimizers, rounds=40, accumulate=1):
    """Update by each optimizer in turn; ``loss``: by the number of the optimizer."""
    for _ in range(rounds):
        for number, optimizer in enumerate(optimizers):
            for _ in range(accumulate):
                loss(number).backward()
            optimizer.step()
            optimizer.zero_grad()


def probe(**more):
    body, head = encoder(), nn.Linear(4, 1)
    loop(lambda _: head(body(X)).sum(), sgd(head), **more)


def frozen():
    body, head = encoder().requires_grad_(False), nn.Linear(4, 1)
    loop(lambda _: head(body(X)).sum(), sgd(head))


def without_graph():
    body, head = encoder(), nn.Linear(4, 1)

    def loss(_):
        with torch.no_grad():
            hidden = body(X)
        return head(hidden).sum()

    loop(loss, sgd(head))


def trained(**more):
    body, head = encoder(), nn.Linear(4, 1)
    loop(lambda _: head(body(X)).sum(), sgd(body, head), **more)


def adversaries():
    maker, judge = encoder(), nn.Linear(4, 1)
    loop(lambda number: judge(maker(X) if number else maker(X).detach()).sum(), sgd(judge), sgd(maker))


def averaged():
    model = encoder()
    mean = copy.deepcopy(model).requires_grad_(False)

    def loss(_):
        for kept, own in zip(mean.parameters(), model.parameters()):  # noqa: B905 (Python 3.9)
            kept.lerp_(own.detach(), 0.1)
        return (model(X) - mean(X)).square().sum()

    loop(loss, sgd(model))


def taught():
    teacher, student = encoder(), encoder()
    loop(lambda _: (teacher(X) - student(X)).square().sum(), sgd(student))


def image():
    body, picture = encoder(), nn.Parameter(X.clone())
    loop(lambda _: body(picture).sum(), torch.optim.SGD([picture], lr=0.1))


def copies():
    """The parameters of the graph are written from those of the optimizer, which are not in it."""
    model, head = encoder(), nn.Linear(4, 1)
    masters = [nn.Parameter(each.detach().clone()) for each in model.parameters()]
    loop(lambda _: head(model(X)).sum(), torch.optim.SGD([*masters, *head.parameters()], lr=0.1))


def by_hand():
    body, head = encoder(), nn.Linear(4, 1)

    def loss(_):
        with torch.no_grad():
            for each in body.parameters():
                each.sub_(0.1 * (each.grad if each.grad is not None else 0.0))
        return head(body(X)).sum()

    loop(loss, sgd(head))


def many():
    body, heads = encoder(), [nn.Linear(4, 1) for _ in range(5)]
    loop(lambda number: heads[number](body(X)).sum(), *map(sgd, heads))


def of_inputs():
    """Somebody takes the gradient of the inputs, for which it passes through all of the model."""
    body, head, inputs = encoder(), nn.Linear(4, 1), X.clone().requires_grad_()
    loop(lambda _: head(body(inputs)).sum(), sgd(head))


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (probe, [4, 6, 6, 8]),  # also the one that the head would pass on
        (lambda: probe(accumulate=3), [4, 6, 6, 8]),
        (taught, [4, 8, 5, 10]),
        (image, [4, 5, 4, 6]),  # the gradient of the picture passes through all products
        (of_inputs, [4, 7, 4, 9]),
        *((program, None) for program in (frozen, without_graph, trained, adversaries, averaged)),
        (lambda: trained(accumulate=4), None),
        *((program, None) for program in (copies, by_hand, many)),
    ],
)
def test_gradients_that_no_optimizer_holds(hooked, program, expected):
    program()
    assert meta_of(hooked).get("unused_gradients") == expected


def test_they_are_counted_again_when_another_optimizer_comes(hooked):
    body, head = encoder(), nn.Linear(4, 1)
    loop(lambda _: head(body(X)).sum(), sgd(head))
    assert meta_of(hooked)["unused_gradients"]
    hooked.publish_facts_anew()
    loop(lambda _: head(body(X)).sum(), sgd(body, head))
    assert meta_of(hooked).get("unused_gradients") is None


def test_of_a_graph_that_is_too_large_nothing_is_known(hooked, monkeypatch):
    monkeypatch.setattr(training_facts, "GRADIENT_NODES_LIMIT", 6)
    probe()
    assert meta_of(hooked).get("unused_gradients") is None


def test_no_parameter_is_kept_alive(hooked):
    body, head = encoder(), nn.Linear(4, 1)
    left = [weakref.ref(each) for each in body.parameters()]
    loop(lambda _, body=body: head(body(X)).sum(), sgd(head))
    assert meta_of(hooked)["unused_gradients"]
    del body
    gc.collect()
    assert [reference() for reference in left] == [None] * 4
