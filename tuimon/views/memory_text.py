"""The allocator's history in words: what is in use, by line, and what grows."""

from __future__ import annotations

from tuimon.records import MemoryHistory, MemoryLine
from tuimon.views.format import place, plain, size

#: Lines of the short form.
_FEW = 3


def head_text(history: MemoryHistory) -> str:
    """``5 steps on cpu: 107 kB allocated and not freed, 132 kB at most``."""
    device = plain(history.device)
    if history.trigger == "oom":
        wanted = f"{size(history.wanted_bytes)} could not be allocated on {device}" if history.wanted_bytes else device
        head = f"out of memory: {wanted}; since the first backward pass"
    else:
        head = f"{history.steps} steps on {device}"
    return f"{head}: {size(history.live_bytes)} allocated and not freed, {size(history.most_bytes)} at most"


def line_text(line: MemoryLine) -> str:
    """``train.py:7 log(): 82 kB in 10 blocks, +8.2 kB a step``."""
    where = f"{place(line.file, line.line)} {plain(line.function)}()" if line.file else "a line that is not known"
    blocks = "1 block" if line.blocks == 1 else f"{line.blocks} blocks"
    growth = f", +{size(line.growth_bytes)} a step" if line.growth_bytes else ""
    return f"{where}: {size(line.live_bytes)} in {blocks}{growth}"


def limits_text(history: MemoryHistory) -> list[str]:
    """The limits of the figures."""
    notes = ["the figures leave out what was allocated before the recording"]
    if history.trigger == "asked":
        notes.append("steps are counted from backward to backward; growth is what most steps left behind")
    if history.pause_ms:
        notes.append(f"recording the memory held the training up for {history.pause_ms:.0f} ms")
    return notes


def memory_lines(history: MemoryHistory) -> list[str]:
    """The short form: the head, the largest lines, and those that grow most."""
    growing = sorted((line for line in history.lines if line.growth_bytes), key=lambda line: -(line.growth_bytes or 0))
    shown = dict.fromkeys((*growing[:_FEW], *history.lines[:_FEW]))
    return [head_text(history), *(f"  {line_text(line)}" for line in shown)]
