"""What the code pairs of ``tuimon explain`` compute: the code after gives the result of the code before, to rounding.

A pair that changes the training says how, and in which case both sides agree all the same.
"""

import contextlib
import gc
import multiprocessing
import shlex
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch

from tests.truth.pairs import Side


class Given(NamedTuple):
    """What a pair's code is run with: ``before`` it, and ``then``, which sets ``result``.

    All of it may use ``when``, which names the side, and ``folder``, an empty one.
    """

    before: str
    then: str
    changes: str | None = None  # in the training, and why
    alike: str = ""  # further code before, with which both sides agree in spite of that


_IMPORTS = """
import collections, contextlib, gc, itertools, multiprocessing, random, threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
import numpy as np, torch
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader, Dataset, IterableDataset
import torch.utils.data
get_worker_info = torch.utils.data.get_worker_info
torch.manual_seed(0); random.seed(0)
"""
_MODEL = """
class Model(nn.Module):
    no_sync = contextlib.nullcontext
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    def forward(self, x, y=None):
        return self.layers(x) if y is None else nn.functional.mse_loss(self.layers(x), y)
def batches_of(rows):
    return [(x, y) for x, y in zip(torch.randn(24 * rows, 16).split(rows), torch.randn(24 * rows, 1).split(rows))]
criterion = loss_of = nn.functional.mse_loss
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = batches_of(8)
def train_step(x, y):
    loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
"""
_WEIGHTS = "result = [p.detach() for p in model.parameters()]"
_PHOTOS = "photos = scans = [torch.full((3, 8, 8), float(n)) for n in range(600)]\n"
_TABLE = """
optimizer.zero_grad()
for rows in batches:
    table(rows).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
result = table.weight.detach()
"""
#: For each pair; sizes as trainings have them.
GIVEN = {
    "hang_0": Given(
        "queue = Queue()\ndef read_items(): return range(100)", "produce(); result = list(queue.queue)[:100]"
    ),
    "hang_1": Given("def read(index): return index", "Data.__len__ = lambda data: 64; result = list(loader)"),
    "input_bound_0": Given(_PHOTOS, "result = list(loader)"),
    "input_bound_1": Given("signals = torch.randn(2, 16_000)", "result = [smooth(signal) for signal in signals]"),
    "input_bound_2": Given("rows = torch.randn(256, 64).tolist()", "result = collate(rows)"),
    "input_bound_3": Given(
        "weights = [1.0 + n % 7 for n in range(1000)]", "result = list(itertools.islice(draw(weights), 12_000))"
    ),
    "input_bound_4": Given(
        "def make_batch(n): return torch.full((16,), float(n))", "result = list(itertools.islice(batches(), 20))"
    ),
    "input_bound_5": Given(_PHOTOS, "result = list(loader)"),
    "input_bound_6": Given(
        "def read(path): return np.full((64, 64), path, np.float32)",
        "tiles = Tiles(range(400)); result = [tiles[n] for n in range(400)]",
    ),
    "input_bound_7": Given(
        "rows = [np.full(64, n, np.float32) for n in range(512)]", "result = torch.stack(list(collate(rows)))"
    ),
    "input_bound_8": Given(
        """
class Pendulums:
    def __init__(self, states): self.states = states
    def __iter__(self): return map(Pendulums, self.states)
    def step(self, action):
        angle, speed = self.states[..., 0], self.states[..., 1]
        speed += 0.1 * (15.0 * angle.sin() + action - 3.5)
        angle += 0.1 * speed
        return self.states.clone(), -angle * angle, abs(angle) > 9.0
states, policy = torch.rand(256, 2), nn.Linear(2, 8)
envs = Pendulums(states.clone())
""",
        "result = [rollout(envs, policy, states).clone() for _ in range(20)]",
    ),
    "input_bound_9": Given(
        """
Worker = collections.namedtuple("Worker", "id num_workers")
for n in range(4): (folder / f"{n}.tar").touch()
def read_rows(shard):
    return [10 * n + row for n in range(4) for row in range(10) if shard in (folder, folder / f"{n}.tar")]
def get_worker_info(): return worker
""",
        "result = []\nfor worker in (Worker(0, 2), Worker(1, 2)): result += Stream(folder)\nresult.sort()",
    ),
    "launch_bound_0": Given(_MODEL, _WEIGHTS),
    "sync_point_0": Given(f"{_MODEL}\ntotal = 0.0", f"{_WEIGHTS} + [torch.as_tensor(total).float()]"),
    "sync_point_1": Given(
        f"""{_MODEL}
model = nn.Linear(16, 1)
nn.init.constant_(model.weight, 0.1)  # exp() of a masked row overflows
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = [(torch.cat((x, 1e4 + x)), torch.cat((y.abs(), y.abs() - 9))) for x, y in loader]
""",
        _WEIGHTS,
    ),
    "transfer_bound_0": Given(f"{_MODEL}\nphotos = [(x[0], y[0]) for x, y in batches_of(64)]", _WEIGHTS),
    "side_work_0": Given(
        f"{_MODEL}\nsaved = {{}}\nclass torch: save = lambda state, path: saved.update({{path: {{**state}}}})",
        "result = [saved, model.state_dict()]",
    ),
    "side_work_1": Given(f"{_MODEL}\nheld_out, evaluate = [], lambda model, loader: None", _WEIGHTS),
    "side_work_2": Given(f"{_MODEL}\nsent = []; send = sent.extend", "result = sent"),
    "recompiles_0": Given(
        f"""{_MODEL}
def batches(): return [x for x, y in loader]
def train(x, scale): train_step(x * scale, torch.ones(8, 1))
""",
        _WEIGHTS,
    ),
    "slow_setting_0": Given(
        f"""{_MODEL}
net, model = model, lambda x: (net(x), torch.ones(1))
def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        "result = [p.detach() for p in net.parameters()]",
    ),
    "optimizer_bound_0": Given(
        "batches = torch.arange(400).split(100)",
        _TABLE,
        "SparseAdam leaves rows alone that a batch does not use; Adam moves them on by their old gradients",
        "batches = [torch.arange(300_000)] * 2",
    ),
    "optimizer_bound_1": Given(
        """
model = nn.Sequential(nn.Conv1d(4, 8, 3), nn.Flatten(), nn.Linear(112, 16))
x = torch.randn(32, 4, 16)
""",
        f"""
optimizer = RowNormalised(model.parameters(), {{}})
for _ in range(3):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
{_WEIGHTS}
""",
    ),
    "optimizer_bound_2": Given(_MODEL, f"for x, y in loader: train_step(x, y)\n{_WEIGHTS}"),
    "straggler_rank_0": Given(f"{_MODEL}\nrank, write_images = 0, lambda x: None", _WEIGHTS),
    "comm_bound_0": Given(
        _MODEL,
        _WEIGHTS,
        "one update for eight batches is that of one batch 8x as large",
        "if when == 'before': loader = [tuple(map(torch.cat, zip(*loader[n : n + 8]))) for n in range(0, 24, 8)]",
    ),
    "gil_contention_0": Given(
        "found = folder / 'found'\ndef statistics(): found.write_text('12')",
        "helper.join(); result = found.read_text()",
    ),
    "cpu_oversubscribed_0": Given("x = torch.randn(512, 512)", "result = x @ x"),
    "step_time_drift_0": Given(f"{_MODEL}\nmeans = []; report = means.append", "result = list(map(float, means))"),
    "memory_pressure_0": Given(_MODEL, "result = list(map(float, losses))"),
    "gc_pauses_0": Given(
        f"{_MODEL}\nbuild_index = list\ndef train():\n    for x, y in loader: train_step(x, y)", _WEIGHTS
    ),
    "small_batch_0": Given(
        _PHOTOS,
        "result = list(loader)",
        "a batch 16x as large is another training: the learning rate has to be retuned",
        "photos = photos[:16]",
    ),
    "low_precision_unused_0": Given(
        _MODEL,
        _WEIGHTS,
        "bfloat16 keeps 8 bits of each product",
        "class torch: set_float32_matmul_precision = str; bfloat16 = 0; autocast = lambda *_: contextlib.nullcontext()",
    ),
    "compute_bound_cpu_0": Given(_MODEL, _WEIGHTS),
    "compute_bound_cpu_1": Given("x = torch.randn(256, 256)", "result = Gate()(x)"),
    "neighbour_0": Given("", ""),
    "allocator_retries_0": Given("", "", "a batch smaller by a sixth is what bounds the memory"),
}


def result_of(side: Side, *, alike: bool = False) -> object:
    """What a side computes, ``"cuda"`` being the CPU; of a command its words but those that set variables."""
    if side.code.language != "python":
        return [word for word in shlex.split(side.text) if "=" not in word]
    given = GIVEN[side.pair]
    with _settings_kept(), tempfile.TemporaryDirectory() as folder:
        names = {"when": side.when, "folder": Path(folder)}
        for text in (_IMPORTS, given.before, given.alike if alike else "", side.text, given.then):
            exec(text.replace('"cuda"', '"cpu"'), names)
        return names["result"]


def result_fault(side: Side) -> str | None:
    """How the pair's results are other than its row states; None if they are not."""
    changes, alike = GIVEN[side.pair].changes, GIVEN[side.pair].alike
    if (fault := _difference(side)) and changes is None:
        return f"after gives another result: {fault}"
    if changes is not None and not fault:
        return f"after gives the same result, in spite of: {changes}"
    if alike and (fault := _difference(side, alike=True)):
        return f"after gives another result even where it should not: {fault}"
    return None


def _difference(side: Side, *, alike: bool = False) -> str | None:
    before, after = (result_of(side._replace(when=when), alike=alike) for when in ("before", "after"))
    try:
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    except TypeError:  # texts
        return None if before == after else f"{after}, not {before}"
    except AssertionError as error:
        return str(error)
    return None


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    """What code may set for the whole process is as it was afterwards; compiled code is torch's to get right."""
    threads, context = torch.get_num_threads(), multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)  # classes of pages are in no module
    try:
        with warnings.catch_warnings(), patch.object(torch, "compile", lambda model, **_: model):
            warnings.simplefilter("ignore")
            yield
    finally:
        multiprocessing.set_start_method(context, force=True)
        torch.set_num_threads(threads)
        gc.unfreeze()
