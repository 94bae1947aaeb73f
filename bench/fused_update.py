"""torch's optimizers on the CPU: the part of an update's time that a fused one takes; prints a table.

And the part that one group of parameters takes of a fused update in which each tensor is a group.

``python bench/fused_update.py [THREADS]``. See ``FUSED_TAKES`` in
``tuimon.diagnosis.rules.compute``.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

#: Steps measured in a row, and how often each optimizer has its turn.
IN_A_ROW, TURNS = 10, 7


def dense(width: int, depth: int) -> nn.Module:
    """Linear layers."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))


def attention() -> nn.Module:
    """Two layers of a transformer's encoder."""
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 2)


#: A model, and the shape of its batch; of a table, the number of its rows.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "64 x 64, 40 tensors": (lambda: dense(64, 20), (64, 64)),
    "256 x 256, 16 tensors": (lambda: dense(256, 8), (64, 256)),
    "640 x 640, 6 tensors": (lambda: dense(640, 3), (64, 640)),
    "1500 x 1500, 6 tensors": (lambda: dense(1500, 3), (64, 1500)),
    "attention, 24 tensors": (attention, (8, 32, 128)),
    "table of 100000 x 32": (lambda: nn.Embedding(100_000, 32), (100_000,)),
}
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "Adam": Adam,
    "AdamW": AdamW,
    "Adagrad": Adagrad,
    "SGD": lambda parameters, **how: SGD(parameters, lr=1e-3, momentum=0.9, **how),
}
#: Torch's own choice on the CPU, all tensors at once, and fused.
FORMS: dict[str, dict[str, bool]] = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def update_ms(model: nn.Module, shape: tuple[int, ...], kind: Callable[..., Optimizer]) -> dict[str, float]:
    """The median time of an update within steps in each form, in turns, so that a busy moment meets all."""
    batch = torch.randint(shape[0], (256,)) if len(shape) == 1 else torch.randn(shape)
    optimizers = {form: kind(model.parameters(), **how) for form, how in FORMS.items()}
    optimizers["grouped"] = kind([{"params": [parameter]} for parameter in model.parameters()], fused=True)
    times: dict[str, list[float]] = {form: [] for form in optimizers}
    for turn in range(TURNS):
        for form, optimizer in optimizers.items():
            took = 0.0
            for _ in range(IN_A_ROW):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                start = time.perf_counter()
                optimizer.step()
                took += time.perf_counter() - start
            if turn:
                times[form].append(1e3 * took / IN_A_ROW)
    return {form: statistics.median(each) for form, each in times.items()}


def main() -> None:
    """All models by all optimizers."""
    torch.manual_seed(0)
    torch.set_num_threads(int(sys.argv[1]) if sys.argv[1:] else torch.get_num_threads())
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; part of the default's time")
    print(f"{'':24}{'optimizer':10}{'default':>12}{'foreach':>10}{'fused':>8}{'one group':>11}")
    for name, (model, shape) in MODELS.items():
        for kind, make in OPTIMIZERS.items():
            times = update_ms(model(), shape, make)
            parts = [times[form] / times["default"] for form in ("foreach", "fused")]
            one = times["fused"] / times["grouped"]
            print(f"{name:24}{kind:10}{times['default']:9.2f} ms{parts[0]:10.2f}{parts[1]:8.2f}{one:11.2f}")


if __name__ == "__main__":
    main()
