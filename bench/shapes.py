"""Small CPU trainings of several shapes, each of which measures its own phases: ``shapes.py SHAPE``.

Every line of input is answered with the seconds so far in each phase, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

SPENT_S: defaultdict[str, float] = defaultdict(float)
WIDTH = 256
BATCH = 64
Pair = tuple[Tensor, Tensor]


class Laps:
    """Gives the time since the last lap to a phase."""

    def __init__(self) -> None:
        self._since_s = time.perf_counter()

    def lap(self, phase: str) -> None:
        """That was this phase."""
        now_s = time.perf_counter()
        SPENT_S[phase] += now_s - self._since_s
        self._since_s = now_s


class Rows(Dataset[Pair]):
    """Rows that take some Python to make."""

    def __init__(self, length: int, work: int) -> None:
        self._length = length
        self._work = work

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Pair:
        noise = sum(random.random() for _ in range(self._work))
        return torch.full((WIDTH,), noise / self._work), torch.tensor(index % 10)


def model_of(depth: int) -> nn.Sequential:
    """Linear layers."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def write_checkpoint(model: nn.Module) -> None:
    """To a file that is gone at once."""
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)


def gradient_norm(model: nn.Module) -> float:
    """Over all parameters, one by one."""
    return sum(float(p.grad.norm()) for p in model.parameters() if p.grad is not None)


def loader() -> None:
    """A DataLoader in the process itself."""
    model = model_of(6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    batches = DataLoader(Rows(BATCH * 200, 120), batch_size=BATCH, shuffle=True)
    laps = Laps()
    while True:
        for x, y in batches:
            laps.lap("data")
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            laps.lap("forward")
            loss.backward()
            laps.lap("backward")
            optimizer.step()
            laps.lap("optimizer")
            if not loss.isfinite():
                raise SystemExit("diverged")
            laps.lap("other")


def all_cores() -> None:
    """The same with a thread for each core, of which none is left while the model computes."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    loader()


def workers() -> None:
    """A DataLoader with worker processes that do not keep up, and a model whose loss is its own."""
    model = model_of(12)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    batches = DataLoader(Rows(BATCH * 100, 300), batch_size=BATCH, num_workers=1, persistent_workers=True)
    laps = Laps()
    while True:
        for x, y in batches:
            laps.lap("data")
            scores = model(x)
            loss = -(scores.log_softmax(1).gather(1, y[:, None])).mean()
            laps.lap("forward")
            loss.backward()
            laps.lap("backward")
            optimizer.step()
            laps.lap("optimizer")
            optimizer.zero_grad(set_to_none=True)
            laps.lap("other")


def batch_by_hand(text: list[int], work: int) -> Pair:
    """Cut out of a list, as many a small language model does."""
    starts = [random.randrange(len(text) - 64) for _ in range(work)]
    rows = [torch.tensor(text[start : start + 64]) for start in starts]
    x = torch.stack(rows).float().repeat(1, WIDTH // 64)[:BATCH]
    return x / 10, x[:, 0].long() % 10


def by_hand() -> None:
    """No DataLoader: a function makes the batches, and every tenth step is told."""
    model = model_of(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text = [random.randrange(10) for _ in range(100_000)]
    laps = Laps()
    for step in range(1 << 30):
        x, y = batch_by_hand(text, 512)
        laps.lap("data")
        loss = functional.cross_entropy(model(x), y)
        laps.lap("forward")
        optimizer.zero_grad()
        laps.lap("forward")
        loss.backward()
        laps.lap("backward")
        optimizer.step()
        laps.lap("optimizer")
        if step % 10 == 0:
            write_checkpoint(model)
        laps.lap("other")


def side_work() -> None:
    """Gradient norms and clipping before the update, metrics and checkpoints after it."""
    model = model_of(6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batches = DataLoader(Rows(BATCH * 200, 40), batch_size=BATCH)
    seen: list[float] = []
    laps = Laps()
    while True:
        for step, (x, y) in enumerate(batches):
            laps.lap("data")
            scores = model(x)
            loss = functional.cross_entropy(scores, y)
            laps.lap("forward")
            optimizer.zero_grad()
            laps.lap("forward")
            loss.backward()
            laps.lap("backward")
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            seen.append(gradient_norm(model))
            laps.lap("other")
            optimizer.step()
            laps.lap("optimizer")
            seen.append(float((scores.argmax(1) == y).float().mean()))
            seen[:] = sorted(seen)[:5000]
            if step % 20 == 0:
                write_checkpoint(model)
            laps.lap("other")


def evaluate(model: nn.Module, batches: DataLoader[Pair], laps: Laps) -> float:
    """Accuracy on other rows."""
    right = 0.0
    model.eval()
    with torch.no_grad():
        for x, y in batches:
            right += float((model(x).argmax(1) == y).float().mean())
    model.train()
    laps.lap("eval")
    return right


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: DataLoader[Pair], laps: Laps) -> None:
    """Once through the rows."""
    for x, y in batches:
        laps.lap("data")
        loss = functional.cross_entropy(model(x), y)
        laps.lap("forward")
        optimizer.zero_grad()
        laps.lap("forward")
        loss.backward()
        laps.lap("backward")
        optimizer.step()
        laps.lap("optimizer")


def evaluated() -> None:
    """A function trains an epoch, another evaluates."""
    model = model_of(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    train = DataLoader(Rows(BATCH * 20, 60), batch_size=BATCH, shuffle=True)
    held_out = DataLoader(Rows(BATCH * 12, 60), batch_size=BATCH)
    laps = Laps()
    while True:
        train_epoch(model, optimizer, train, laps)
        evaluate(model, held_out, laps)


def endless(batches: DataLoader[Pair]) -> Iterator[Pair]:
    """Around and around."""
    while True:
        yield from batches


def evaluated_inside() -> None:
    """Accumulated gradients from an endless iterator; evaluation stands in the loop's own body."""
    model = model_of(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    train = endless(DataLoader(Rows(BATCH * 20, 60), batch_size=BATCH, shuffle=True))
    held_out = DataLoader(Rows(BATCH * 8, 60), batch_size=BATCH)
    laps = Laps()
    for step in range(1 << 30):
        for _ in range(2):
            x, y = next(train)
            laps.lap("data")
            loss = functional.cross_entropy(model(x), y)
            laps.lap("forward")
            loss.backward()
            laps.lap("backward")
        optimizer.step()
        laps.lap("optimizer")
        optimizer.zero_grad()
        laps.lap("other")
        if step % 10 == 9:
            with torch.no_grad():
                for other_x, other_y in held_out:
                    functional.cross_entropy(model(other_x), other_y)
            laps.lap("eval")


SHAPES: dict[str, Callable[[], None]] = {
    shape.__name__: shape for shape in (loader, all_cores, workers, by_hand, side_work, evaluated, evaluated_inside)
}


def answer() -> None:
    """The truth, whenever it is asked for; ``sys.stdin`` would be locked in forked workers."""
    while os.read(0, 64):
        print(json.dumps(SPENT_S), flush=True)


def main() -> None:
    """Train for ever."""
    torch.set_num_threads(1)
    print("up", flush=True)
    threading.Thread(target=answer, daemon=True).start()
    SHAPES[sys.argv[1]]()


if __name__ == "__main__":
    main()
