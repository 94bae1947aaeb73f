"""A training step right after the step before, and after a stretch of other work of its thread; prints a table.

What the step takes more then is what goes with the other work: see ``tuimon.diagnosis.step_model.model``.
"""

from __future__ import annotations

import io
import re
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

#: Stretches of other work, in ms.
STRETCHES = (1, 3, 10, 30, 100)
#: Steps that are measured after each, and steps in a row before, of which the last is the warm one.
CYCLES, IN_A_ROW = 25, 3
#: Steps before anything is measured.
WARM_UP = 30


class Recurrent(nn.Module):
    """Two layers over a short sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.GRU(16, 64, 2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(N, steps, 16) -> (N, 10)."""
        return self.head(self.layers(x)[0][:, -1])


class Attention(nn.Module):
    """Two layers of a transformer's encoder."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(N, steps, 64) -> (N, 10)."""
        return self.head(self.layers(x)[:, -1])


def dense(width: int, depth: int) -> nn.Module:
    """Linear layers with a head of ten classes."""
    return nn.Sequential(
        *(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())), nn.LazyLinear(10)
    )


def convolutions() -> nn.Module:
    """Two layers over a signal of three channels."""
    layers = nn.Conv1d(3, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    return nn.Sequential(*layers)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense 64 x 3": (lambda: dense(64, 3), (32, 64)),
    "dense 256 x 12": (lambda: dense(256, 12), (32, 256)),
    "convolutions": (convolutions, (32, 3, 256)),
    "recurrent": (Recurrent, (16, 12, 16)),
    "attention": (Attention, (16, 16, 64)),
}


def python(ms: float) -> None:
    """Arithmetic of the interpreter."""
    end, n = time.perf_counter() + ms / 1e3, 0
    while time.perf_counter() < end:
        for i in range(200):
            n += i % 3 == i % 5


def parsing(ms: float) -> None:
    """A regular expression over lines of a log."""
    pattern, lines, end = re.compile(r"(\w+)=(\d+)"), "loss=12 step=400 rate=3 " * 12, time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pattern.findall(lines)


def saving(ms: float) -> None:
    """Copies of 1.4 MB."""
    weights, end = {n: torch.zeros(300, 300) for n in range(4)}, time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        torch.save(weights, io.BytesIO())


def sleeping(ms: float) -> None:
    """No work at all."""
    time.sleep(ms / 1e3)


def step_of(model: nn.Module, shape: tuple[int, ...]) -> Callable[[], float]:
    """A step of this model, which gives its length in ms."""
    inputs, classes = torch.randn(shape), torch.randint(10, shape[:1])
    model(inputs)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)

    def step() -> float:
        begin = time.perf_counter_ns()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), classes).backward()
        optimizer.step()
        return (time.perf_counter_ns() - begin) / 1e6

    return step


def main() -> None:
    """Print what a step takes more, in ms, by model, work and its length."""
    torch.set_num_threads(1)
    print(f"{'ms more after':28s}" + "".join(f"{ms:7d} ms" for ms in STRETCHES))
    for name, (build, shape) in MODELS.items():
        step = step_of(build(), shape)
        for _ in range(WARM_UP):
            step()
        for work in (python, parsing, saving, sleeping):
            more, warm = [], []
            for ms in STRETCHES:
                pairs = []
                for _ in range(CYCLES):
                    before = [step() for _ in range(IN_A_ROW)][-1]
                    work(ms)
                    pairs.append((before, step()))
                warm.append(statistics.median(before for before, _ in pairs))
                more.append(statistics.median(after - before for before, after in pairs))
            label = f"{name}, {statistics.median(warm):.2f} ms"
            print(f"{label:24s}{work.__name__:9s}" + "".join(f"{ms:7.2f}   " for ms in more), flush=True)


if __name__ == "__main__":
    main()
