"""Other tools that can watch a whole training: their step times, over the loops and in the run that ours are taken in.

They are the dependency group ``bench``; what is not installed is said to be so.
"""

from __future__ import annotations

import os
import shutil
import sys

from bench import overhead
from bench.overhead import Say
from bench.table import Row
from bench.trainee import PLAIN_COMMAND, Variant

_PROGRAM = PLAIN_COMMAND[1:]  # without the interpreter
_PY_SPY = ("record", "--rate", "100", "--duration", "3600", "--pid", "{pid}", "--output", "{folder}/py-spy.svg")
_SCALENE = ("run", "--cpu-only", "--outfile", "{folder}/scalene.json", "{steps}", "---", "{requests}", "{answers}")

#: name, the program that it needs, what is started: (around the training, beside it).
_TOOLS: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("py-spy 100 Hz", "py-spy", (), _PY_SPY),
    ("py-spy 100 Hz, nonblocking", "py-spy", (), (*_PY_SPY, "--nonblocking")),
    ("TraceML", "traceml", ("run", "{steps}", "--args", "{requests}", "{answers}"), ()),
    ("scalene, CPU", "scalene", _SCALENE, ()),
    ("memray, aggregated", "memray", ("run", "--quiet", "--aggregate", "-o", "{folder}/memray.bin", *_PROGRAM), ()),
)


def variants() -> tuple[list[Variant], list[str]]:
    """What can be run, those beside this Python first; and the names of what is not installed."""
    found, missing = [Variant("torch.profiler", (*PLAIN_COMMAND, "--torch-profiler"))], []
    for name, program, around, beside in _TOOLS:
        path = shutil.which(program, path=os.path.dirname(sys.executable))
        if path is None:
            missing.append(name)
        elif around:
            found.append(Variant(name, (path, *around)))
        else:
            found.append(Variant(name, beside=(path, *beside)))
    return found, missing


def measure(loops: list[str], *, rounds: int, turns: int, block_s: float, say: Say) -> list[Row]:
    """A row per loop and tool, tuimon's own first; one for each tool that is not installed."""
    found, missing = variants()
    rows = overhead.measure(loops, [overhead.TUIMON, *found], rounds=rounds, turns=turns, block_s=block_s, say=say)
    return rows + [Row(name, None, None, unit="x", why_absent="not installed") for name in missing]
