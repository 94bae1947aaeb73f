"""Lists of cores as the kernel writes them: ``0-3,8`` (cpuset(7), *List format*)."""

from __future__ import annotations

from collections.abc import Collection

#: No machine has more; a list may name any.
_MOST = 1 << 16


def core_numbers(text: str) -> frozenset[int]:
    """The numbers in a list; empty for what is no list."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) >= _MOST:
            return frozenset()
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def core_list(numbers: Collection[int]) -> str:
    """The list of these cores."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
