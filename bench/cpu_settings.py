"""Settings that slow a training on the CPU down: the part of a step's time that is left without each; prints a table.

``python bench/cpu_settings.py``; with ``ONEDNN_MAX_CPU_ISA=AVX512_CORE`` (or ``AVX2``) as on a CPU without products of
bfloat16. See the thresholds in ``tuimon.diagnosis.rules.compute``.
"""

from __future__ import annotations

import contextlib
import cProfile
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import nn

#: Steps in a row, and how often each has its turn.
IN_A_ROW, TURNS = 5, 5
Context = Callable[[], AbstractContextManager[object]]


class Attention(nn.Module):
    """Two layers of a transformer's encoder, as long sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x``: batch, length, 128."""
        output: torch.Tensor = self.layers(x)
        return output


def dense(width: int, depth: int) -> nn.Module:
    """Linear layers."""
    return nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())))


def convolutions() -> nn.Module:
    """Three convolutions of images."""
    return nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense 64 x 20": (lambda: dense(64, 20), (64, 64)),
    "dense 512 x 4": (lambda: dense(512, 4), (128, 512)),
    "convolutions": (convolutions, (8, 3, 48, 48)),
    "attention": (Attention, (8, 64, 128)),
}


def autocast(dtype: torch.dtype) -> Context:
    """A type of two bytes."""
    return lambda: torch.autocast("cpu", dtype)


#: The type of the parameters, and what a step runs in.
SETTINGS: dict[str, tuple[torch.dtype, Context]] = {
    "plain": (torch.float32, contextlib.nullcontext),
    "autocast": (torch.float32, autocast(torch.bfloat16)),
    "float16": (torch.float32, autocast(torch.float16)),
    "bfloat16": (torch.bfloat16, contextlib.nullcontext),
    "float64": (torch.float64, contextlib.nullcontext),
}


def rollout() -> None:
    """Calls of small functions."""

    def step(state: list[float], action: float) -> list[float]:
        return [0.9 * value + 0.01 * action for value in state]

    state = [0.0] * 8
    for number in range(2000):
        state = step(state, number % 2)


def mirrored() -> None:
    """A loop over numbers that calls nothing."""
    values = []
    for number in range(20_000):
        value = number * 7919 % 255
        values.append((255 - value if value > 128 else value) / 255.0)


def parsed() -> None:
    """Calls of built-in functions."""
    rows = [f"{number},{2 * number},{3 * number}" for number in range(3000)]
    [[float(field) for field in row.split(",")] for row in rows]


#: Python code, for tracers.
CODE: tuple[Callable[[], None], ...] = (rollout, mirrored, parsed)


def traced_s(code: Callable[[], None]) -> dict[str, float]:
    """CPU time of Python code without a tracer and with one, the least of several turns."""

    def trace(_frame: object, _event: str, _value: object) -> object:
        return trace

    profile = cProfile.Profile()
    tracers: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "plain": (lambda: None, lambda: None),
        "cProfile": (profile.enable, profile.disable),
        "settrace": (lambda: sys.settrace(trace), lambda: sys.settrace(None)),  # type: ignore[arg-type]
    }
    least = dict.fromkeys(tracers, float("inf"))
    for _ in range(TURNS):
        for name, (begin, end) in tracers.items():
            begin()
            begin_s = time.process_time()
            code()
            took_s = time.process_time() - begin_s
            end()
            least[name] = min(least[name], took_s)
    return least


def step_s(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> dict[str, float]:
    """CPU time of forward and backward under each setting, the least of several turns."""
    models = {name: make().to(dtype) for name, (dtype, _) in SETTINGS.items()}
    least = dict.fromkeys(SETTINGS, float("inf"))
    for _ in range(TURNS):
        for name, (dtype, context) in SETTINGS.items():
            x = torch.randn(shape, dtype=dtype)
            begin = time.process_time()
            for _ in range(IN_A_ROW):
                with context():
                    loss = models[name](x).square().mean()
                loss.backward()
            least[name] = min(least[name], time.process_time() - begin)
    return least


def main() -> None:
    """All models under all settings."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"{'':16}{'plain':>10}" + "".join(f"{name:>10}" for name in SETTINGS if name != "plain"))
    for name, (make, shape) in MODELS.items():
        took = step_s(make, shape)
        print(f"{name:16}{1e3 * took['plain'] / IN_A_ROW:7.2f} ms{_parts(took)}")
    print(f"\n{'':16}{'plain':>10}{'cProfile':>10}{'settrace':>10}")
    for code in CODE:
        took = traced_s(code)
        print(f"{code.__name__:16}{1e3 * took['plain']:7.2f} ms{_parts(took)}")


def _parts(took: dict[str, float]) -> str:
    return "".join(f"{took['plain'] / took_s:10.2f}" for name, took_s in took.items() if name != "plain")


if __name__ == "__main__":
    main()
