"""``python -m bench``: measure what tuimon costs and print it as a table.

Limits are printed beside what was measured, not asserted: a shared machine is no judge. Everything is a ratio or a
share, taken in one run; the noise is the same measurement with plain against plain.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from bench import (
    accuracy,
    beside,
    first_frame,
    hooks_in_process,
    log_rate,
    many_windows,
    monitor_cost,
    overhead,
    peers,
    ring_cost,
    sampler,
)
from bench.table import Row, render, render_markdown

PARTS = (
    "ring",
    "hooks",
    "frame",
    "monitor",
    "windows",
    "log",
    "metrics",
    "sampler",
    "accuracy",
    "steps",
    "beside",
    "peers",
)


class Effort(NamedTuple):
    """How long to measure."""

    rounds: int
    turns: int
    block_s: float
    window_s: float
    repeats: int


FULL = Effort(rounds=8, turns=1, block_s=1.0, window_s=30.0, repeats=7)
QUICK = Effort(rounds=2, turns=1, block_s=0.5, window_s=8.0, repeats=3)


def parts(effort: Effort) -> dict[str, Callable[[], list[Row]]]:
    """What can be measured, by name."""
    how = {"turns": effort.turns, "block_s": effort.block_s, "say": say}
    loops, peer_rounds = list(overhead.PROMISES), (effort.rounds + 1) // 2
    return {
        "ring": lambda: ring_cost.measure(effort.repeats, say),
        "hooks": lambda: hooks_in_process.measure(10.0 * effort.repeats, say),
        "frame": lambda: first_frame.measure(effort.repeats, say),
        "monitor": lambda: monitor_cost.measure(effort.window_s, say),
        "windows": lambda: many_windows.measure(say),
        "log": lambda: log_rate.measure(2 * effort.window_s, say),
        "metrics": lambda: _metrics_cost(3 * effort.repeats, say),
        "accuracy": lambda: accuracy.measure(2 * effort.window_s, say),
        "sampler": lambda: sampler.measure(2 * effort.window_s, say),
        "steps": lambda: overhead.measure(loops, [overhead.TUIMON], rounds=effort.rounds, **how),
        "beside": lambda: beside.measure(4 * effort.repeats, 2 * effort.block_s, say),
        "peers": lambda: peers.measure(["0.3ms", "10ms"], rounds=peer_rounds, **{**how, "turns": 1}),
    }


def _metrics_cost(repeats: int, say: Callable[[str], None]) -> list[Row]:
    from bench import metrics_cost

    return metrics_cost.measure(repeats, say)


def say(text: str) -> None:
    """Progress goes to stderr: the table is the output."""
    print(text, file=sys.stderr, flush=True)


def machine() -> str:
    """One line that says where this was measured."""
    versions = [f"{name} {_version(name)}" for name in ("tuimon", "torch", "py-spy", "textual")]
    load = os.getloadavg()[0]
    return (
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, load {load:.2f} at the start, "
        f"Python {platform.python_version()}, {', '.join(versions)}"
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main() -> int:
    """Measure the parts asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about a minute and a half, with more noise")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--markdown", action="store_true", help="a Markdown table, for a README")
    args = parser.parse_args()
    where, start_s = machine(), time.monotonic()
    rows: list[Row] = []
    for name, measure in parts(QUICK if args.quick else FULL).items():
        if name in args.only:
            rows += measure()
    print(where)
    print(render_markdown(rows) if args.markdown else render(rows))
    print("x: median step time against plain, [quartiles over rounds; over blocks, where all are of one process]")
    print("noise: plain against plain in the same run")
    say(f"measured in {time.monotonic() - start_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
