"""What casts of autocast, and updates that go through many tensors, take of a loop that only launches; prints a table.

``python bench/launches.py``. The operations are so small that calling them takes all of the time, as where a GPU waits
for launches; there a cast is a launch as well, and takes more. See ``AUTOCAST_TAKES`` and ``FUSED_OF_SINGLE`` in
``tuimon.diagnosis.rules.gpu``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW

#: Calls measured in a row, and how often each form has its turn.
IN_A_ROW, TURNS = 20, 9
WIDTH = 8

MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear, ReLU": lambda: nn.Sequential(*(m for _ in range(20) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))),
    "linear, norm, GELU": lambda: nn.Sequential(
        *(m for _ in range(24) for m in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()))
    ),
    "attention": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, batch_first=True, dropout=0.0), 4, enable_nested_tensor=False
    ),
}
FORMS = {"one by one": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def least_ms(*forms: Callable[[], object]) -> list[float]:
    """The least time of each, in turns, so that a busy moment meets all."""
    times: list[list[float]] = [[] for _ in forms]
    for _ in range(TURNS):
        for form, own in zip(forms, times, strict=True):
            form()
            start = time.perf_counter()
            for _ in range(IN_A_ROW):
                form()
            own.append(1e3 * (time.perf_counter() - start) / IN_A_ROW)
    return [min(own) for own in times]


def training(model: nn.Module, autocast: bool) -> Callable[[], object]:
    """Forward and backward."""
    batch = torch.randn(2, 4, WIDTH)

    def passes() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(batch).float().square().mean()
        loss.backward()

    return passes


def update(kind: Callable[..., torch.optim.Optimizer], tensors: int, form: dict[str, bool]) -> Callable[[], object]:
    """The update of so many small tensors."""
    parameters = [nn.Parameter(torch.randn(WIDTH)) for _ in range(tensors)]
    for parameter in parameters:
        parameter.grad = torch.randn(WIDTH)
    return kind(parameters, lr=1e-3, **form).step


def main() -> None:
    """Both tables."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}\nforward and backward    without   under autocast   part that it takes")
    for name, make in MODELS.items():
        plain, cast = least_ms(*(training(make(), autocast) for autocast in (False, True)))
        print(f"{name:22}{plain:7.2f} ms{cast:14.2f} ms{1 - plain / cast:19.2f}")
    print("update         tensors   one by one    fused, part of that   part of foreach")
    for kind in (Adam, AdamW, SGD):
        for tensors in (50, 200, 800):
            single, foreach, fused = least_ms(*(update(kind, tensors, form) for form in FORMS.values()))
            print(f"{kind.__name__:14}{tensors:8}{single:10.2f} ms{fused / single:22.2f}{fused / foreach:18.2f}")


if __name__ == "__main__":
    main()
