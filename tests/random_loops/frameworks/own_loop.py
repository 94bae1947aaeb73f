"""accelerate and Lightning Fabric: loops that their author wrote, with the framework's calls in them."""

from __future__ import annotations

import re

from tests.random_loops import loops
from tests.random_loops.loops import Blocks, Names
from tests.random_loops.plan import Plan

ACCELERATE = ("from accelerate import Accelerator",)
FABRIC = ("from lightning.fabric import Fabric",)
_LOADER = re.compile(r"( *)(self\.|)loader = make_loader\(\)")


def accelerate(plan: Plan, names: Names) -> Blocks:
    """Whose Accelerator prepares model, optimizer and loader together."""
    precision = ', mixed_precision="bf16"' if "bf16" in plan.features else ""
    prepare = "{0}model, {0}optimizer, {0}loader = accelerator.prepare({0}model, {0}optimizer, {0}loader)"
    blocks = _with_calls(loops.SHAPES[plan.loop](plan, names), "accelerator", [prepare])
    return [[f"accelerator = Accelerator(cpu=True{precision})"], *blocks]


def fabric(plan: Plan, names: Names) -> Blocks:
    """Whose Fabric does the same in two calls."""
    precision = ', precision="bf16-mixed"' if "bf16" in plan.features else ""
    setup = ["{0}model, {0}optimizer = fabric.setup({0}model, {0}optimizer)"]
    setup.append("{0}loader = fabric.setup_dataloaders({0}loader)")
    blocks = _with_calls(loops.SHAPES[plan.loop](plan, names), "fabric", setup)
    start = [f'fabric = Fabric(accelerator="cpu", devices=1{precision})']
    return [start, *blocks]


def _with_calls(blocks: Blocks, framework: str, prepare: list[str]) -> Blocks:
    return [[new for line in block for new in _line(line, framework, prepare)] for block in blocks]


def _line(line: str, framework: str, prepare: list[str]) -> list[str]:
    made = _LOADER.fullmatch(line)
    if made:
        indent, owner = made.groups()
        return [line, *(indent + call.format(owner) for call in prepare)]
    line = line.replace("loss.backward()", f"{framework}.backward(loss)")
    if framework == "accelerator":
        line = line.replace("nn.utils.clip_grad_norm_(", "accelerator.clip_grad_norm_(")
    return [line]
