"""torch's optimizers on the CPU: the part of an update's time that a fused one takes; prints a table.

See ``FUSED_TAKES`` in ``tuimon.diagnosis.rules.compute.optimizer``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

#: Updates measured in a row, and how often each optimizer has its turn.
IN_A_ROW, TURNS = 20, 7

MODELS: dict[str, Callable[[], nn.Module]] = {
    "64 x 64, 40 tensors": lambda: dense(64, 20),
    "256 x 256, 16 tensors": lambda: dense(256, 8),
    "640 x 640, 6 tensors": lambda: dense(640, 3),
    "1500 x 1500, 6 tensors": lambda: dense(1500, 3),
    "attention, 24 tensors": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 2
    ),
    "table of 100000 x 32": lambda: nn.Embedding(100_000, 32),
}
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "Adam": Adam,
    "AdamW": AdamW,
    "Adagrad": Adagrad,
    "SGD": lambda parameters, **how: SGD(parameters, lr=1e-3, momentum=0.9, **how),
}
#: Torch's own choice on the CPU, all tensors at once, and fused.
FORMS: dict[str, dict[str, bool]] = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def dense(width: int, depth: int) -> nn.Module:
    """Linear layers."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))


def update_ms(model: nn.Module, kind: Callable[..., Optimizer]) -> dict[str, float]:
    """The median time of an update in each form, in turns, so that a busy moment meets all."""
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizers = {form: kind(model.parameters(), **how) for form, how in FORMS.items()}
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    for _ in range(TURNS):
        for form, optimizer in optimizers.items():
            optimizer.step()
            start = time.perf_counter()
            for _ in range(IN_A_ROW):
                optimizer.step()
            times[form].append(1e3 * (time.perf_counter() - start) / IN_A_ROW)
    return {form: statistics.median(each) for form, each in times.items()}


def main() -> None:
    """All models by all optimizers."""
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; part of the default's time")
    print(f"{'':24}{'optimizer':10}{'default':>12}{'foreach':>10}{'fused':>8}")
    for name, model in MODELS.items():
        for kind, make in OPTIMIZERS.items():
            times = update_ms(model(), make)
            parts = [times[form] / times["default"] for form in ("foreach", "fused")]
            print(f"{name:24}{kind:10}{times['default']:9.2f} ms{parts[0]:10.2f}{parts[1]:8.2f}")


if __name__ == "__main__":
    main()
