"""Pieces of a training that take a known time: every pause is measured where it happens and told at the end."""

from __future__ import annotations

import time
from collections import Counter

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, SequentialSampler

#: Phase -> seconds really spent in pauses.
truth: Counter[str] = Counter()


def pause(phase: str, ms: float) -> None:
    """Take this long, in this phase."""
    start = time.perf_counter()
    time.sleep(ms / 1000)
    truth[phase] += time.perf_counter() - start


def delayed_s() -> float:
    """Seconds for which the main thread has waited for a core; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class _SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, ms: float) -> Tensor:
        ctx.ms = ms
        return x.clone()

    @staticmethod
    def backward(ctx, grad: Tensor):
        pause("backward", ctx.ms)
        return grad, None


class Model(nn.Module):
    """A linear layer whose forward and backward passes take 4 and 6 ms."""

    def __init__(self, forward_ms: float = 4, backward_ms: float = 6) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.forward_ms, self.backward_ms = forward_ms, backward_ms
        self.phase = "forward"

    def forward(self, x: Tensor) -> Tensor:
        pause(self.phase, self.forward_ms)
        return _SlowBackward.apply(self.layer(x), self.backward_ms)


class Data(Dataset):
    """Items that take 1 ms each."""

    def __init__(self, count: int, ms: float = 1, phase: str = "data") -> None:
        self.count, self.ms, self.phase = count, ms, phase

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        pause(self.phase, self.ms)
        return torch.ones(4)


class Sgd(torch.optim.SGD):
    """An optimizer that takes 3 ms more."""

    def step(self, closure=None):
        pause("optimizer", 3)
        return super().step(closure)


class SlowSampler(SequentialSampler):
    """A shuffle of a huge data set: the beginning of an epoch takes 40 ms."""

    def __iter__(self):
        time.sleep(0.04)
        return super().__iter__()


def loader(batches: int, phase: str = "data", workers: int = 0, **more) -> DataLoader:
    """Batches of four items: 4 ms each."""
    return DataLoader(Data(4 * batches, phase=phase), batch_size=4, num_workers=workers, **more)


def slow_starter(batches: int, **more) -> DataLoader:
    """A loader with a worker whose ``iter()`` takes 40 ms and more."""
    data = Data(4 * batches)
    return DataLoader(data, batch_size=4, num_workers=1, sampler=SlowSampler(data), **more)


#: How long epochs took to end (which may wait for workers) since the latest step.
ends_s: list[float] = []


def started(batches, phase: str | None = "data"):
    """An iterator; how long it took to make is time of this phase."""
    start = time.perf_counter()
    iterator = iter(batches)
    if phase:
        truth[phase] += time.perf_counter() - start
    return iterator


def waited(batches):
    """The batches of a loader; how long each took to come is data time, and how long the end, once a step follows."""
    batches = iter(batches)
    while True:
        start = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            ends_s.append(time.perf_counter() - start)
            return
        truth["data"] += time.perf_counter() - start + sum(ends_s)
        ends_s.clear()
        yield batch
