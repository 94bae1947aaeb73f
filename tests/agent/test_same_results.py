"""A training is bit for bit the same with our injection and without."""

import sys

import pytest

from tests.agent.programs import environment, python
from tests.warm_torch import warm_python

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.trust]

#: ends with everything that could differ: weights, losses, optimizer state, random streams, what is printed
TRAINING = """
import hashlib, random, sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
random.seed(0)
digest = hashlib.sha256()


def add(*tensors):
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 2)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        h = checkpoint(lambda t: self.drop(torch.relu(self.first(t))), x, use_reentrant=False)
        return self.second(h)


model = Model()
data = TensorDataset(torch.randn(96, 8), torch.randint(0, 2, (96,)))
adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
for workers in (0, 2):
    for x, y in DataLoader(data, 16, shuffle=True, num_workers=workers):
        x.requires_grad_()
        adam.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        slope, = torch.autograd.grad(loss, x, create_graph=True)  # double backward
        loss = loss + slope.pow(2).sum()
        loss.backward()
        adam.step()
        add(loss)
        print(f"loss {loss.item()!r}")

lbfgs = torch.optim.LBFGS(model.second.parameters(), max_iter=4)
hidden = torch.randn(32, 16)


def closure():
    lbfgs.zero_grad()
    value = model.second(hidden).pow(2).mean()
    value.backward()
    return value


add(lbfgs.step(closure))
scaler = torch.amp.GradScaler("cpu")
for factor in (1.0, float("inf"), 1.0):
    adam.zero_grad()
    scaler.scale(model(torch.ones(4, 8)).sum() * factor).backward()
    scaler.step(adam)
    scaler.update()
for image in torch.randn(3, 2, 1, 8, 8):
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.conv2d(image, model.first.weight.view(16, 1, 2, 4)).float().square().mean()
    adam.zero_grad(set_to_none=False)
    loss.backward()
    adam.step()
    add(loss)
per_sample = torch.func.vmap(torch.func.grad(lambda w, x: (w * x).sum().sin()), in_dims=(None, 0))
add(per_sample(torch.randn(8), torch.randn(5, 8)))
add(*torch.autograd.functional.hessian(lambda v: v.pow(3).sum(), torch.randn(4)))
add(*model.parameters(), *(p.grad for p in model.parameters()))
add(*(value for state in adam.state.values() for value in state.values()))
add(torch.get_rng_state())
print(digest.hexdigest(), random.random(), scaler.get_scale())
try:
    list(DataLoader(data, sampler=[1000]))
except IndexError as error:
    import traceback
    traceback.print_exc()
print("to stderr", file=sys.stderr)
sys.exit(7)
"""


def test_weights_losses_random_streams_output_and_exit_code(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    plain = warm_python(str(script), env=environment(None), cwd=tmp_path)
    ours = python(str(script), env=environment(tmp_path / "rings"), cwd=tmp_path)
    assert plain.returncode == 7, plain.stderr
    assert (tmp_path / "rings").is_dir()  # it was instrumented
    assert plain.stdout.count("loss") == 12
    assert ours.stdout == plain.stdout
    if sys.version_info >= (3, 11):
        assert ours.stderr == plain.stderr
    assert ours.returncode == plain.returncode
