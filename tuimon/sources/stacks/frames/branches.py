"""Which branch of an ``if`` a line is in, and whether it is in a loop, by the indentation of its file."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BRANCH = re.compile(rb"(?:if|elif|else)\b")
_LOOP = re.compile(rb"(?:async\s+for|for|while)\b")
_COMPREHENSION = re.compile(rb"\S\s+for\s.+\sin\s")
_FUNCTION = re.compile(rb"(?:async\s+)?(?:def|class)\b")


def branch_around(lines: Sequence[bytes], number: int) -> tuple[int, int] | None:
    """First and last line of the innermost branch of an ``if`` around a line, in its function; None without one.

    Of this code they are 2 to 4 for line 4, and none for line 5::

        1  while True:
        2      if step % 100 == 0:
        3          for batch in held_out:
        4              losses.append(model(batch))
        5      model(x).backward()
    """
    found = _around(lines, number, _BRANCH)
    return (found[0], _last_of_block(lines, *found)) if found is not None else None


def is_in_loop(lines: Sequence[bytes], number: int) -> bool:
    """Whether a line is in a ``for`` or ``while`` of its function, or has one of its own: a comprehension."""
    if not 0 < number <= len(lines):
        return False
    return _COMPREHENSION.search(lines[number - 1]) is not None or _around(lines, number, _LOOP) is not None


def _around(lines: Sequence[bytes], number: int, head: re.Pattern[bytes]) -> tuple[int, int] | None:
    """The innermost line of this kind that a line is indented below, in its function, and how far it is indented."""
    if not 0 < number <= len(lines):
        return None
    inner = _indentation(lines[number - 1])
    for at in range(number - 1, 0, -1):
        text = lines[at - 1]
        indentation = _indentation(text)
        if indentation is None or inner is None or indentation >= inner:
            continue
        inner = indentation
        if _FUNCTION.match(text.lstrip()):
            return None
        if head.match(text.lstrip()):
            return at, indentation
    return None


def _last_of_block(lines: Sequence[bytes], head: int, indentation: int) -> int:
    last = head
    for at in range(head + 1, len(lines) + 1):
        own = _indentation(lines[at - 1])
        if own is not None:
            if own <= indentation:
                break
            last = at
    return last


def _indentation(text: bytes) -> int | None:
    """How far a line is indented; None of one without code, or that only ends or goes on with what is in brackets."""
    code = text.lstrip()
    if not code or code[:1] in b"#)]}":
        return None
    return len(text[: len(text) - len(code)].expandtabs(8))
