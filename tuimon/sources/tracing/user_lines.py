"""The lines of the user's code that the training thread was at while it was traced, from the agent's samples."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec

from tuimon.agent.ring.side_files import LINES, remove_file, side_file
from tuimon.code_origin import is_user_file
from tuimon.proc.side_files import read_side_file
from tuimon.text import plain
from tuimon.trace.events import Stretch

#: The agent's thread writes its file when torch lets go of the GIL: right after the trace (s).
TIMEOUT_S = 2.0
_POLL_S = 0.02
#: A sample stands for the time around it, up to half the way to its neighbours, and for no more than so many spacings.
_MOST_SPACINGS = 1.5
_NAME_CHARACTERS = 120


class _Frame(msgspec.Struct):
    name: str
    file: str
    line: int


class _File(msgspec.Struct):
    order: int
    frames: list[_Frame]
    stacks: list[list[int]]
    samples: list[tuple[int, int]]


_decoder = msgspec.json.Decoder(_File)


def read_lines(ring_path: str, order: int) -> list[Stretch]:
    """The stretches of the trace of this order, in ns of the monotonic clock; none where there is no file."""
    path = side_file(ring_path, LINES)
    until_s = time.monotonic() + TIMEOUT_S
    try:
        while True:
            file = _decoded(read_side_file(path))
            if file is not None and file.order == order:
                return stretches_of(file.samples, [_user_line(stack, file.frames) for stack in file.stacks])
            if time.monotonic() > until_s:
                return []
            time.sleep(_POLL_S)
    finally:
        remove_file(path)


def stretches_of(samples: Sequence[tuple[int, int]], lines: Sequence[str]) -> list[Stretch]:
    """Neighbouring samples of one line as one stretch; ``samples``: time and stack, ``lines``: of each stack, or ""."""
    known = [(time_ns, lines[stack]) for time_ns, stack in samples if 0 <= stack < len(lines)]
    known = [each for each, before in zip(known, [(0, ""), *known], strict=False) if each[0] > before[0]]
    if len(known) < 2:
        return []
    most_ns = int(_MOST_SPACINGS * median(after[0] - before[0] for before, after in pairwise(known)))
    found: list[Stretch] = []
    for at, (time_ns, line) in enumerate(known):
        before_ns = (time_ns - known[at - 1][0]) // 2 if at else most_ns
        after_ns = (known[at + 1][0] - time_ns) // 2 if at + 1 < len(known) else most_ns
        begin_ns, end_ns = time_ns - min(before_ns, most_ns), time_ns + min(after_ns, most_ns)
        if found and found[-1].name == line and begin_ns - found[-1].end_ns <= 1:
            found[-1] = found[-1]._replace(end_ns=end_ns)
        elif line:
            found.append(Stretch(line, max(begin_ns, found[-1].end_ns) if found else begin_ns, end_ns))
    return found


def _user_line(stack: Sequence[int], frames: Sequence[_Frame]) -> str:
    """The innermost line of the user's code: ``main() train.py:44``; "" where there is none."""
    for number in reversed(stack):
        if 0 <= number < len(frames) and is_user_file(frames[number].file):
            frame = frames[number]
            return plain(f"{frame.name}() {os.path.basename(frame.file)}:{frame.line}")[:_NAME_CHARACTERS]
    return ""


def _decoded(raw: bytes) -> _File | None:
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
