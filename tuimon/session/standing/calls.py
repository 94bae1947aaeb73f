"""What a line of source calls."""

from __future__ import annotations

import re

_CALL = re.compile(r"\b([A-Za-z_][\w.]*)\(")
_DEFINES = re.compile(r"^\s*(?:async\s+)?(?:def|class)\b")


def outer_calls(source: str) -> list[str]:
    """The bare names of the calls that no other encloses: ``["open"]`` of ``with open(join(a, b)) as f:``.

    What Python code that line calls has a frame of its own: where it is the innermost, only calls into C are left.
    """
    if _DEFINES.match(source):
        return []
    depth, outer, until = 0, [], 0
    for found in _CALL.finditer(source):
        depth += source.count("(", until, found.start()) - source.count(")", until, found.start())
        until = found.start()
        if depth <= 0:
            outer.append(found[1].rpartition(".")[2])
    return outer
