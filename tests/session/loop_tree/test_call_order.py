"""Which call of a line makes what the model gets."""

import pytest

from tuimon.session.loop_tree.call_order import is_made_for_model


@pytest.mark.parametrize(
    ("source", "function"),
    [
        ("logits = model(augment(x))", "augment"),
        ("loss = cost(model(augment(x)), y)", "augment"),
        ("loss = self.cost(self.model(self.augment(x)), y)", "augment"),
        ("out = net(augment(x.float()).to(device), mask=m)", "augment"),
        ("out = model(ids, attention_mask=causal_mask(len(ids)))", "causal_mask"),
        ("out = model(torch.stack(corrupt(rows)))", "corrupt"),
        ("for out in model(augment(x)):", "augment"),
        ("return self.net(corrupted(x))", "__call__"),
        ("loss = criterion(model(corrupted(x)), y)", "__call__"),
    ],
)
def test_comes_before_the_model(source: str, function: str) -> None:
    assert is_made_for_model(source, function)


@pytest.mark.parametrize(
    ("source", "function"),
    [
        ("logits = model(x)", "augment"),
        ("loss = cost(model(x), y)", "cost"),
        ("loss = cost(model(x), weights(y))", "weights"),  # the model may have run by then
        ("loss = smooth(model(x)) + penalty(x)", "penalty"),
        ("out = head(pool(encoder(x)))", "pool"),
        ("loss = criterion(predict(x), y)", "predict"),  # a model of functions, and a loss of torch's
        ("loss = torch.sum(predict(x))", "predict"),
        ("loss = criterion(model(x), y)", "__call__"),
        ("out = decode(model(x))", "__call__"),
        ("out = model(x).apply(lambda h: model(augment(h)))", "augment"),
        ("logits = model(", "augment"),
        ("", "augment"),
    ],
)
def test_may_be_of_the_forward_pass(source: str, function: str) -> None:
    assert not is_made_for_model(source, function)
