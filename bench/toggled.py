"""One process that trains with tuimon's hooks and without, a few steps each in turns, and prints the ratios as JSON.

The same model, memory and core serve both, and both see the same moments: this knows 0.1 %, which between processes is
lost in how they differ. What it leaves out is the monitor beside the training.

With ``--empty`` functions that do nothing stand in the places of the hooks: what no hook there can go below. With
``--native`` there are no hooks: in turns the kernel samples the threads, for what runs below Python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.autograd
import torch.autograd.graph
import torch.utils.data._utils.fetch
import torch.utils.data.dataloader
from steps import LOOPS, Loop

from tuimon.agent import install, runtime
from tuimon.agent.pace import pace
from tuimon.proc import procfs
from tuimon.sources.native import ThreadClock

#: A block has so many steps and lasts at least so long; its first steps find the code of the other way cold or gone.
BLOCK_STEPS = 10
BLOCK_NS = 60_000_000
SKIPPED_STEPS = 3
#: In a loop this fast, of which few steps are timed, it takes longer to go on as before.
FAST_NS = 2_500_000
FAST_SKIPPED_STEPS = 400
#: The hooks' first steps cost more than all later ones: facts are published, all steps are timed.
SETTLE_STEPS = 200
#: A step this many times the usual was interrupted: hooks add 4 % to the steps that they time.
LONG = 1.5
#: What is printed are the means of so many parts of the time.
PARTS = 8
_ABSENT = object()


class Place(NamedTuple):
    """A name in torch that hooks are bound to."""

    owner: Any
    name: str


PLACES = (
    Place(torch.autograd, "_engine_run_backward"),
    Place(torch.autograd.graph, "_engine_run_backward"),
    Place(torch.utils.data.dataloader._BaseDataLoaderIter, "__next__"),
    Place(torch.utils.data._utils.fetch._MapDatasetFetcher, "fetch"),
    Place(torch.utils.data._utils.fetch._MapDatasetFetcher, "collate_fn"),
)
_optimizer = sys.modules["torch.optim.optimizer"]
STEP_HOOKS: tuple[dict[int, Any], ...] = (
    _optimizer._global_optimizer_pre_hooks,  # type: ignore[attr-defined]
    _optimizer._global_optimizer_post_hooks,  # type: ignore[attr-defined]
)


class Hooks:
    """Our hooks in torch, taken out for some steps and put back as they were, in a gap of their markers or not."""

    def __init__(self) -> None:
        """Hook torch as ``tuimon run`` does. Raises RuntimeError when there is no room for a ring."""
        self._plain = [_bound(place) for place in PLACES]
        install.install(torch, _now)
        if not runtime.on:
            raise RuntimeError("no ring: is there room in /dev/shm?")
        runtime.facts_due = False
        self.off()

    def on(self) -> None:
        """Put them back."""
        for place, value in zip(PLACES, self._hooked, strict=True):
            _bind(place, value)
        for hooks, ours in zip(STEP_HOOKS, self._step_hooks, strict=True):
            hooks.update(ours)
        self._skip_time(time.monotonic_ns() - self._off_ns)

    def off(self) -> None:
        """Take them out."""
        self._hooked = [_bound(place) for place in PLACES]
        self._step_hooks = [dict(hooks) for hooks in STEP_HOOKS]
        for place, value in zip(PLACES, self._plain, strict=True):
            _bind(place, value)
        for hooks in STEP_HOOKS:
            hooks.clear()
        self._off_ns = time.monotonic_ns()

    @staticmethod
    def _skip_time(away_ns: int) -> None:
        """Steps without hooks pay for none of the timing."""
        pace.bucket.now_ns += away_ns
        pace.clock_read_ns += away_ns


class EmptyHooks(Hooks):
    """The same with functions that do nothing but call what they stand for."""

    def __init__(self) -> None:
        super().__init__()
        self._hooked = [
            value if value is _ABSENT or value is plain else _calling(plain)
            for value, plain in zip(self._hooked, self._plain, strict=True)
        ]
        self._step_hooks = [dict.fromkeys(ours, _nothing) for ours in self._step_hooks]


class KernelSamples(Hooks):
    """No hooks: samples of what runs below Python, by the kernel, which nobody reads."""

    def __init__(self) -> None:
        self._clocks: list[ThreadClock] = []

    def on(self) -> None:
        """Sample all threads."""
        self._clocks = [ThreadClock(tid) for tid in procfs.thread_ids(os.getpid())]

    def off(self) -> None:
        """Sample none."""
        for clock in self._clocks:
            clock.close()


def _calling(plain: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    return call


def _nothing(optimizer: Any, args: Any, kwargs: Any) -> None:
    pass


def _now(name: str, then: Callable[[ModuleType], None]) -> None:
    module = sys.modules.get(name)
    if module is not None:
        then(module)


def _bound(place: Place) -> Any:
    return place.owner.__dict__.get(place.name, _ABSENT)


def _bind(place: Place, value: Any) -> None:
    if value is not _ABSENT:
        setattr(place.owner, place.name, value)
    elif place.name in place.owner.__dict__:
        delattr(place.owner, place.name)


class Blocks:
    """Takes the mean step of one block after another."""

    def __init__(self, loop: Loop) -> None:
        """Learn how long a step is. The first ones with hooks do much but once."""
        self._loop = loop
        usual_ns = statistics.fmean(islice(loop.steps(), SETTLE_STEPS))
        self._steps = max(BLOCK_STEPS, int(BLOCK_NS / usual_ns))
        self._skipped = SKIPPED_STEPS if usual_ns > FAST_NS else FAST_SKIPPED_STEPS

    def mean_ns(self) -> float:
        """Without the block's first steps, and those in which the thread had lost its core.

        No median: in a fast loop only some of the steps are timed, and cost more than the others.
        """
        times = list(islice(self._loop.steps(), self._skipped, 2 * self._skipped + self._steps))
        limit = LONG * statistics.median(times)
        return statistics.fmean(time_ns for time_ns in times if time_ns < limit)


def ratios(loop: Loop, seconds: float, kind: type[Hooks] = Hooks) -> dict[str, list[float]]:
    """Blocks with hooks against their neighbours without, and every second one without against the next such ones."""
    hooks = kind()
    hooks.on()
    blocks = Blocks(loop)
    hooks.off()
    on, off = [], [blocks.mean_ns()]
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        hooks.on()
        on.append(blocks.mean_ns())
        hooks.off()
        off.append(blocks.mean_ns())
    hooks.on()
    install.uninstall()
    return {"hooked": _means(_ratios(on, off)), "plain": _means(_ratios(off[1::2], off[::2])), "off_ns": off}


def _ratios(these: list[float], around: list[float]) -> list[float]:
    """Each against the one before and the one after it, apart: a block that was disturbed makes both ends alike."""
    return [one / other for at, one in enumerate(these) for other in around[at : at + 2]]


def _means(values: list[float]) -> list[float]:
    """The means of parts of the time; in each, an eighth of the values at either end were disturbed."""
    parts = [sorted(values[part * len(values) // PARTS : (part + 1) * len(values) // PARTS]) for part in range(PARTS)]
    return [statistics.geometric_mean(part[len(part) // 8 : len(part) - len(part) // 8]) for part in parts if part]


def loop_that_lasts(name: str) -> Loop:
    """The loop of this name, with batches so large that a step takes what the name says on this machine as well."""
    width, hidden, batch_size, workers, device = LOOPS[name]
    named_ns = float(name.partition("ms")[0]) * 1e6 if device == "cpu" else 0.0
    while True:
        loop = Loop(width, hidden, batch_size, workers, device)
        loop.run(0.05)
        if statistics.median(loop.run(0.3)) >= named_ns:
            return loop
        batch_size += max(1, batch_size // 16)


def main() -> None:
    """Measure the loops named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each loop (default %(default)s)")
    parser.add_argument("--text", action="store_true", help="mean and standard error, in words, in place of JSON")
    parser.add_argument("--empty", action="store_true", help="functions that do nothing in the hooks' places")
    parser.add_argument("loops", nargs="+", choices=list(LOOPS), metavar="LOOP")
    parser.add_argument("--native", action="store_true", help="samples of the kernel in place of hooks")
    args = parser.parse_args()
    kind = KernelSamples if args.native else EmptyHooks if args.empty else Hooks
    torch.set_num_threads(1)
    install.uninstall()  # importing tuimon hooks a torch that is there
    found = {}
    for name in args.loops:
        found[name] = ratios(loop_that_lasts(name), args.seconds, kind)
        if args.text:
            print(_text(name, found[name]), flush=True)
    if not args.text:
        print(json.dumps(found))


def _text(name: str, found: dict[str, list[float]]) -> str:
    hooked, plain = (
        f"{statistics.fmean(found[what]):.4f}x (±{statistics.stdev(found[what]) / len(found[what]) ** 0.5:.4f})"
        for what in ("hooked", "plain")
    )
    step_ms = statistics.fmean(found["off_ns"]) / 1e6
    return f"{name}, {step_ms:.2f} ms a step: with them {hooked}, plain against plain {plain}"


if __name__ == "__main__":
    main()
