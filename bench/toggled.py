"""One process that trains with tuimon's hooks and without, in alternating blocks, and prints the ratios as JSON.

The same model, memory and core serve both, so the noise is far less than between processes; what it leaves out is the
monitor beside the training.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from types import ModuleType

import torch
from steps import LOOPS, Loop

from tuimon.agent import install, runtime

SETTLE_S = 0.05
#: The hooks' first steps cost more than all later ones: facts are published, the period of the loop is searched.
SETTLE_STEPS = 70
BLOCK_STEPS = 50
#: Where that makes blocks longer there are fewer of them, but no fewer than this.
FEWEST_PAIRS = 30
#: A step this many times the usual was interrupted: hooks add 4 % to the steps that they time.
LONG = 1.5


def hooks_on() -> None:
    """Hook torch as ``tuimon run`` does. Raises RuntimeError when there is no room for a ring."""
    install.install(torch, _now)
    if not runtime.on:
        raise RuntimeError("no ring: is there room in /dev/shm?")
    runtime.facts_due = False  # a training publishes its facts seven times in its life, not in every block


def _now(name: str, then: Callable[[ModuleType], None]) -> None:
    module = sys.modules.get(name)
    if module is not None:
        then(module)


def mean_ns(loop: Loop, block_s: float, step_s: float) -> float:
    """Mean step time of a block, its first moments left out, and steps in which the thread had lost its core.

    No median: in a fast loop only some of the steps are timed, and cost more than the others.
    """
    loop.run(max(SETTLE_S, SETTLE_STEPS * step_s))
    times = loop.run(max(block_s, BLOCK_STEPS * step_s))
    limit = LONG * statistics.median(times)
    return statistics.fmean(time for time in times if time < limit)


def ratios(loop: Loop, pairs: int, block_s: float) -> dict[str, list[float]]:
    """Each block with hooks, and each without, against the blocks without around it."""
    step_s = mean_ns(loop, block_s, 0.0) / 1e9
    pairs = max(min(pairs, FEWEST_PAIRS), int(pairs * min(1.0, block_s / (BLOCK_STEPS * step_s))))
    off = [mean_ns(loop, block_s, step_s)]
    hooked: list[float] = []
    for _ in range(pairs):
        hooks_on()
        with_hooks = mean_ns(loop, block_s, step_s)
        install.uninstall()
        off.append(mean_ns(loop, block_s, step_s))
        hooked.append(2 * with_hooks / (off[-2] + off[-1]))
    plain = [2 * middle / (before + after) for before, middle, after in zip(off, off[1:], off[2:], strict=False)]
    return {"hooked": hooked, "plain": plain, "off_ns": off}


def loop_that_lasts(name: str) -> Loop:
    """The loop of this name, with batches so large that a step takes what the name says on this machine as well."""
    width, hidden, batch_size, workers, device = LOOPS[name]
    named_ns = float(name.partition("ms")[0]) * 1e6 if device == "cpu" else 0.0
    while True:
        loop = Loop(width, hidden, batch_size, workers, device)
        loop.run(SETTLE_S)
        if statistics.median(loop.run(0.3)) >= named_ns:
            return loop
        batch_size += max(1, batch_size // 16)


def main() -> None:
    """Measure the loops named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pairs", type=int, default=20, help="blocks with hooks, fewer if steps are slow (default %(default)s)"
    )
    parser.add_argument(
        "--block", type=float, default=0.3, help="seconds a block, if 50 steps take less (default %(default)s)"
    )
    parser.add_argument("loops", nargs="+", choices=list(LOOPS), metavar="LOOP")
    args = parser.parse_args()
    torch.set_num_threads(1)
    install.uninstall()  # importing tuimon hooks a torch that is there
    found = {name: ratios(loop_that_lasts(name), args.pairs, args.block) for name in args.loops}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
