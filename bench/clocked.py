"""One process that trains with tuimon's hooks, and how long it is in them by clock reads around and within, as JSON.

Where a step takes milliseconds, the hooks' microseconds are lost in how its own time wanders. What this leaves out is
that the step's own code finds the caches a little colder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

import torch
import torch.autograd
import torch.autograd.graph
import torch.utils.data.dataloader
from steps import LOOPS, Loop
from toggled import hooks_on, loop_that_lasts

from tuimon.agent import hooks, install

BLOCK_S = 1.0
SETTLE_S = 0.8
#: A hook that takes longer was interrupted; the longest of its own, in a rest's search for a period, takes 0.3 ms.
INTERRUPTED_NS = 1_000_000
CALLS = (
    ((torch.autograd, torch.autograd.graph), "_engine_run_backward"),
    ((torch.utils.data.dataloader._BaseDataLoaderIter,), "__next__"),
)
UPDATE_HOOKS = ("_step_begins", "_step_ends")

Function = Callable[..., Any]


class Clock:
    """The ns that pass between ``around`` a function and ``within`` it, summed over all calls."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self._began = self._ended = 0

    def within(self, function: Function) -> Function:
        """What the hook is to call."""

        def called(*args: Any, **kwargs: Any) -> Any:
            self._began = perf_counter_ns()
            result = function(*args, **kwargs)
            self._ended = perf_counter_ns()
            return result

        return called

    def around(self, function: Function) -> Function:
        """What torch is to call in place of the hook."""

        def call(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter_ns()
            result = function(*args, **kwargs)
            self._add(self._began - began)
            self._add(perf_counter_ns() - self._ended)
            return result

        return call

    def whole(self, function: Function) -> Function:
        """A hook that torch calls beside its own code."""

        def call(*args: Any) -> None:
            began = perf_counter_ns()
            function(*args)
            self._add(perf_counter_ns() - began)

        return call

    def _add(self, ns: int) -> None:
        if ns < INTERRUPTED_NS:
            self.spent_ns += ns


@contextmanager
def clocked(clock: Clock, *, hooked: bool) -> Iterator[None]:
    """Clock what torch calls at the boundaries of a step, with our hooks in between or without."""
    bound = [(owner, name, getattr(owner, name)) for owners, name in CALLS for owner in owners]
    updates = [(hooks, name, getattr(hooks, name)) for name in UPDATE_HOOKS]
    try:
        _rebind(clock.within)
        for owner, name, function in updates:
            setattr(owner, name, clock.whole(function))
        if hooked:
            hooks_on()
        _rebind(clock.around)
        yield
    finally:
        install.uninstall()
        for owner, name, function in bound + updates:
            setattr(owner, name, function)


def _rebind(wrapped: Callable[[Function], Function]) -> None:
    for owners, name in CALLS:
        function = wrapped(getattr(owners[0], name))
        for owner in owners:
            setattr(owner, name, function)


def hook_ns(loop: Loop, *, hooked: bool) -> tuple[float, float]:
    """Mean ns in the hooks in a step of a block, and the mean step."""
    clock = Clock()
    with clocked(clock, hooked=hooked):
        loop.run(SETTLE_S)
        clock.spent_ns = 0
        times = loop.run(BLOCK_S)
    return clock.spent_ns / len(times), statistics.fmean(times)


def ratios(loop: Loop, blocks: int) -> dict[str, list[float]]:
    """Steps with the time in the hooks against steps without it; without hooks the clock itself takes some of it."""
    hooked, plain, off_ns = [], [], []
    for _ in range(blocks):
        without_ns, step_ns = hook_ns(loop, hooked=False)
        with_ns, _ = hook_ns(loop, hooked=True)
        hooked.append(1 + with_ns / step_ns)
        plain.append(1 + without_ns / step_ns)
        off_ns.append(step_ns)
    return {"hooked": hooked, "plain": plain, "off_ns": off_ns}


def main() -> None:
    """Measure the loops named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=7, help="blocks with hooks (default %(default)s)")
    parser.add_argument("loops", nargs="+", choices=list(LOOPS), metavar="LOOP")
    args = parser.parse_args()
    torch.set_num_threads(1)
    install.uninstall()  # importing tuimon hooks a torch that is there
    json.dump({name: ratios(loop_that_lasts(name), args.blocks) for name in args.loops}, sys.stdout)


if __name__ == "__main__":
    main()
