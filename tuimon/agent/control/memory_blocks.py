"""Which blocks of memory were allocated and not freed, by the Python stack that allocated them."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

#: A line of code: file, line, function.
Line = Tuple[str, int, str]
#: Stacks that are listed, those with most bytes; the others are summed up.
STACKS_LISTED = 300
#: Frames of a stack, counted from the innermost.
DEPTH = 24


class _Block(NamedTuple):
    size: int
    stack: Tuple[Line, ...]  # innermost first
    step: int


class Blocks:
    """Replays allocations and frees, oldest first, and reports what is left of them."""

    def __init__(self, step_ends_ns: List[int]) -> None:
        """``step_ends_ns``: when each recorded step ended, on the events' clock; what comes later is in no step."""
        self._ends = step_ends_ns
        self._step = 0
        self._live: Dict[int, _Block] = {}
        self._total = self._most = 0

    def allocate(self, time_ns: int, address: int, size: int, stack: Tuple[Line, ...]) -> None:
        """A block was allocated."""
        while self._step < len(self._ends) and time_ns > self._ends[self._step]:
            self._step += 1
        self.free(address)
        self._live[address] = _Block(size, stack, self._step)
        self._total += size
        self._most = max(self._most, self._total)

    def free(self, address: int) -> None:
        """A block was freed, perhaps one from before the recording."""
        block = self._live.pop(address, None)
        if block is not None:
            self._total -= block.size

    def content(self) -> Dict[str, Any]:
        """What is still allocated, by stack, most bytes first; ``growth`` is in bytes a step."""
        groups: Dict[Tuple[Line, ...], List[_Block]] = {}
        for block in self._live.values():
            groups.setdefault(block.stack, []).append(block)
        ordered = sorted(groups.items(), key=lambda group: -sum(block.size for block in group[1]))
        listed, rest = ordered[:STACKS_LISTED], ordered[STACKS_LISTED:]
        lines: Dict[Line, int] = {}
        stacks = [
            {
                "frames": [lines.setdefault(line, len(lines)) for line in stack],
                "bytes": sum(block.size for block in blocks),
                "blocks": len(blocks),
                "growth": _growth(blocks, len(self._ends)),
            }
            for stack, blocks in listed
        ]
        return {
            "lines": list(lines),
            "stacks": stacks,
            "folded_bytes": sum(block.size for _, blocks in rest for block in blocks),
            "live_bytes": self._total,
            "most_bytes": self._most,
        }


def _growth(blocks: List[_Block], steps: int) -> Optional[int]:
    """Bytes that each step left behind; 0 unless most steps did. None of a single step.

    The last step does not count: what it holds may be freed in the next. What one step leaves for good is set-up, such
    as an optimizer's state.
    """
    if steps < 2:
        return None
    left = [0] * (steps - 1)
    for block in blocks:
        if block.step < len(left):
            left[block.step] += block.size
    growing = sum(1 for size in left if size)
    return sum(left) // len(left) if 2 * growing > len(left) else 0
