"""The file in which an agent leaves what its allocator still holds."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuimon.code_origin import is_user_file
from tuimon.proc.target_files import TargetFiles
from tuimon.records import MemoryHistory, MemoryLine
from tuimon.sources.source_text import SourceText

#: Lines of one record.
_LINES = 40
#: Numbers beyond are damaged.
_LIMIT = 1 << 53
_NAME_CHARS = 300


class _Stack(msgspec.Struct):
    frames: list[int]
    bytes: int
    blocks: int
    growth: int | None = None


class _File(msgspec.Struct):
    trigger: Literal["asked", "oom"]
    device: str
    steps: int
    lines: list[tuple[str, int, str]]
    stacks: list[_Stack]
    live_bytes: int
    most_bytes: int
    folded_bytes: int
    pause_ns: int
    wanted_bytes: int | None = None


_decoder = msgspec.json.Decoder(_File)
_Key = tuple[str, int, str]


def read_history(raw: bytes, pid: int, t: float, source: SourceText, files: TargetFiles) -> MemoryHistory:
    """The record of what an agent has written. Raises ValueError when it is damaged."""
    try:
        file = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"the agent's figures are damaged: {error}") from error
    numbers = [file.steps, file.live_bytes, file.most_bytes, file.folded_bytes, file.pause_ns, file.wanted_bytes or 0]
    numbers += [number for s in file.stacks for number in (s.bytes, s.blocks, s.growth or 0)]
    numbers += [line for _, line, _ in file.lines]
    if not all(0 <= number < _LIMIT for number in numbers):
        raise ValueError("the agent's figures are damaged")
    groups: dict[_Key, list[_Stack]] = {}
    for stack in file.stacks:
        groups.setdefault(_line_of(stack, file.lines), []).append(stack)
    ordered = sorted(groups.items(), key=lambda group: -sum(stack.bytes for stack in group[1]))
    return MemoryHistory(
        t=t,
        pid=pid,
        trigger=file.trigger,
        device=file.device[:_NAME_CHARS],
        steps=file.steps,
        live_bytes=file.live_bytes,
        most_bytes=file.most_bytes,
        lines=[_memory_line(key, stacks, source, files) for key, stacks in ordered[:_LINES]],
        folded_bytes=file.folded_bytes + sum(s.bytes for _, stacks in ordered[_LINES:] for s in stacks),
        wanted_bytes=file.wanted_bytes,
        pause_ms=round(file.pause_ns / 1e6, 3),
    )


def _line_of(stack: _Stack, lines: list[_Key]) -> _Key:
    """The innermost line of the user's code; without one, the innermost."""
    frames = [lines[number] for number in stack.frames if 0 <= number < len(lines)]
    return next((frame for frame in frames if is_user_file(frame[0])), frames[0] if frames else ("", 0, ""))


def _memory_line(key: _Key, stacks: list[_Stack], source: SourceText, files: TargetFiles) -> MemoryLine:
    file, line, function = key
    user = bool(file) and is_user_file(file)
    known = [stack.growth for stack in stacks if stack.growth is not None]
    return MemoryLine(
        file[-_NAME_CHARS * 4 :],
        line,
        function[:_NAME_CHARS],
        source.line(file, line, files) if user else "",
        user,
        sum(stack.bytes for stack in stacks),
        sum(stack.blocks for stack in stacks),
        sum(known) if known else None,
    )
