"""The frameworks: what each can be drawn with, and what writes its script."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from tests.random_loops.frameworks import ignite, lightning, own_loop, poutyne, skorch, transformers
from tests.random_loops.loops import Blocks, Names
from tests.random_loops.plan import INPUT_PLACES, SIDE_PLACES, Plan

#: Without a sampler: these make their loaders themselves, of a data set and a number of workers.
_LOADER_IS_ITS_OWN = INPUT_PLACES[:3]


@dataclass(frozen=True)
class Framework:
    """One of them."""

    package: str
    imports: tuple[str, ...]
    blocks: Callable[[Plan, Names], Blocks]
    side_places: tuple[str, ...]
    features: tuple[str, ...]
    input_places: tuple[str, ...] = INPUT_PLACES
    loops: tuple[str, ...] = ("",)  # shapes of the loop around it
    accumulates: bool = True
    evaluates_epochs: bool = False  # and knows no other way
    needs_watch: bool = True  # as the loop is not the script's own

    @property
    def installed(self) -> bool:
        """Whether it is there."""
        return importlib.util.find_spec(self.package) is not None


_OWN_LOOPS = ("flat", "functions", "trainer")
_OWN_PLACES = ("step_end", "before_update", "evaluation")

FRAMEWORKS = {
    "accelerate": Framework(
        "accelerate",
        own_loop.ACCELERATE,
        own_loop.accelerate,
        _OWN_PLACES,
        ("bf16",),
        loops=_OWN_LOOPS,
        needs_watch=False,
    ),
    "fabric": Framework(
        "lightning",
        own_loop.FABRIC,
        own_loop.fabric,
        _OWN_PLACES,
        ("bf16",),
        loops=_OWN_LOOPS,
        needs_watch=False,
    ),
    "ignite": Framework("ignite", ignite.IMPORTS, ignite.blocks, SIDE_PLACES, ("checkpoint", "log")),
    "lightning": Framework(
        "lightning",
        lightning.IMPORTS,
        lightning.blocks,
        SIDE_PLACES,
        ("bf16", "checkpoint", "log", "progress", "two_optimizers"),
    ),
    "poutyne": Framework(
        "poutyne",
        poutyne.IMPORTS,
        poutyne.blocks,
        (*_OWN_PLACES, "batch_start"),
        ("checkpoint", "log"),
        accumulates=False,
        evaluates_epochs=True,
    ),
    "skorch": Framework(
        "skorch",
        skorch.IMPORTS,
        skorch.blocks,
        (*_OWN_PLACES, "batch_start", "override"),
        ("checkpoint", "log"),
        _LOADER_IS_ITS_OWN,
        accumulates=False,
        evaluates_epochs=True,
    ),
    "transformers": Framework(
        "transformers",
        transformers.IMPORTS,
        transformers.blocks,
        SIDE_PLACES,
        ("bf16", "checkpoint", "log", "progress"),
        _LOADER_IS_ITS_OWN,
    ),
}
