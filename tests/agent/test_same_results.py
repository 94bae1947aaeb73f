"""A training is bit for bit the same with our injection and without, and makes the same calls."""

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


#: Ends with a count of the calls of each method of the program's, and with what they have changed.
PROGRAM = """
import collections
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
calls = collections.Counter()


def called(function):
    name = function.__qualname__

    def counted(*args, **kwargs):
        calls[name] += 1
        torch.rand(1)  # each moves what follows
        return function(*args, **kwargs)

    return counted


class Watchful:
    '''Sees each look at an attribute of its own.'''

    def __getattribute__(self, name):
        calls[type(self).__name__, name] += 1
        return object.__getattribute__(self, name)

    __class__ = property(called(lambda self: type(self)))


class Rows(Watchful, Dataset):
    __len__ = called(lambda self: 40)
    __getitem__ = called(lambda self, index: torch.rand(2))


class Order(Watchful):
    batch_size = property(called(lambda self: 2))
    __len__ = called(lambda self: 40)
    __iter__ = called(lambda self: iter(range(40)))


class Watched(torch.Tensor):
    '''Sees each function that is called with it.'''

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        calls["Watched", getattr(function, "__name__", str(function))] += 1
        return super().__torch_function__(function, types, args, kwargs or {})

    for name in ("dtype", "shape", "layout", "is_cpu", "requires_grad", "grad_fn"):
        plain = getattr(torch.Tensor, name)
        locals()[name] = property(called(lambda self, plain=plain: plain.__get__(self)))
    for name in ("numel", "element_size", "dim", "is_pinned"):
        locals()[name] = called(getattr(torch.Tensor, name))
    del name, plain


class Wrapped(torch.Tensor):
    '''Answers for its sizes itself.'''

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dispatch_sizes_strides_policy="sizes")

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        calls["Wrapped", str(function)] += 1
        return function(*[each.held if isinstance(each, cls) else each for each in args], **(kwargs or {}))


class Functions(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        calls["function", getattr(function, "__name__", str(function))] += 1
        return function(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        calls["operation", str(function)] += 1
        return function(*args, **(kwargs or {}))


class Odd(dict):
    for name in ("__len__", "__iter__", "__getitem__", "values", "items", "get"):
        locals()[name] = called(getattr(dict, name))
    del name


class Held(Watchful):
    def __init__(self, **attributes):
        object.__getattribute__(self, "__dict__").update(attributes)

    __len__ = __iter__ = called(lambda self: 0)


class Own(Watchful, torch.optim.SGD):
    @property
    def param_groups(self):
        return self.held

    @param_groups.setter
    def param_groups(self, groups):
        self.held = groups


class Failed(Exception):
    def __str__(self):
        print("asked for its text")
        return "told"


def collate(items):
    rows = torch.stack(items)
    text = {"input_ids": torch.ones(2, 3, dtype=torch.int64).as_subclass(Watched)}
    return [rows, rows.as_subclass(Watched), Wrapped(rows), Odd(x=rows), Held(x=rows, text=text)]


class Collate(Watchful):
    __call__ = called(lambda self, items: collate(items))
    __getattr__ = called(lambda self, name: None)


weight = torch.nn.Parameter(torch.ones(2))
watched = torch.ones(2).as_subclass(Watched).requires_grad_()
optimizers = [torch.optim.SGD([watched], lr=0.1), Own([weight], lr=0.1)]
loaders = [DataLoader(Rows(), 2, shuffle=shuffle, collate_fn=collate, drop_last=shuffle) for shuffle in (False, True)]
loaders += [DataLoader(Rows(), 2, sampler=Order(), collate_fn=Collate()), DataLoader(Rows(), None, sampler=Order())]
with Functions(), Operations():
    for loader in [*loaders, *loaders]:
        iterator = iter(loader)
        for batch in iterator:
            rows = batch[0]
            ((weight * rows).sum() + (watched * rows).sum()).backward()
            for optimizer in optimizers:
                optimizer.step()
        print(sorted(vars(iterator)), sorted(vars(loader)))
for name, number in sorted(calls.items(), key=str):
    print(name, number)
print(weight.tolist(), torch.rand(1))
raise Failed
"""


def test_the_programs_code_runs_as_often_as_without_us(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    plain = warm_python(str(script), env=environment(None), cwd=tmp_path)
    ours = warm_python(str(script), env=environment(tmp_path / "rings"), cwd=tmp_path)
    assert plain.returncode == 1 and plain.stdout.endswith("asked for its text\n"), plain.stderr
    assert ours.stdout.splitlines() == plain.stdout.splitlines()
    assert (ours.returncode, ours.stderr) == (1, plain.stderr)
    assert (tmp_path / "rings").is_dir()
