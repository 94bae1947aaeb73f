"""Guards of torch.compile in plain words: what differed from what was compiled, and what to do about that."""

from __future__ import annotations

import re
from typing import NamedTuple


class Guard(NamedTuple):
    """``differs``: the end of "recompiles, as ..."."""

    differs: str
    fix: str


_DYNAMIC = (
    "let it be dynamic: torch.compile without dynamic=False, or torch._dynamo.mark_dynamic({x}, {d}) before the call;"
    " or pad to a few lengths"
)
#: The first that matches holds. Texts: torch/csrc/dynamo/guards.cpp and torch/_dynamo/guards.py of torch 2.2 to 2.13.
_GUARDS: tuple[tuple[re.Pattern[str], Guard], ...] = tuple(
    (re.compile(pattern), Guard(differs, fix))
    for pattern, differs, fix in (
        (
            r"tensor '(?P<x>[^']+(?:'[^']*'[^']*)*)' size mismatch at index (?P<d>\d+)",
            "dimension {d} of {x} differs",
            _DYNAMIC,
        ),
        (
            r"(?P<x>[\w.\[\]'\"]+)\.size\(\)\[(?P<d>\d+)\]",
            "dimension {d} of {x} differs",
            _DYNAMIC,
        ),
        (
            r"tensor '(?P<x>.+)' rank mismatch",
            "the number of dimensions of {x} differs",
            "give {x} as many dimensions each time",
        ),
        (
            r"tensor '(?P<x>.+)' (?P<d>dtype|device|stride|requires_grad|dispatch key set) mismatch",
            "the {d} of {x} differs",
            "give {x} with the same {d} each time",
        ),
        (
            r"grad_mode|GLOBAL_STATE|autocast",
            "gradients or autocast are on in one call and off in another",
            "call it in one mode: a version for training and one for evaluation is usual, more are not",
        ),
        (
            r"BACKEND_MATCH|different backend",
            "torch.compile is called with another backend",
            "call torch.compile once, and keep what it returns",
        ),
        (
            r"got deallocated|invalidated because",
            "the compiled object was replaced",
            "compile once and keep the object, instead of making and compiling one after the other",
        ),
        (
            r"len\((?P<x>[^()]+)\)",
            "the length of {x} differs",
            "give {x} the same length each time, or as one tensor",
        ),
        (
            r"___check_(?:obj|type)_id\((?P<x>[^,()]+)",
            "{x} is another object",
            "make {x} once and pass the same object each time",
        ),
        (
            r"(?P<x>[A-Za-z_][\w.\[\]'\"]*) (?:==|is|!=|<=?|>=?) ",
            "{x} has another value",
            "pass {x} as a tensor: torch.tensor({x})",
        ),
    )
)
_LOCAL = re.compile(r"L\[['\"](\w+)['\"]\]")
_ANY = Guard(
    "something differs from what was compiled",
    "keep the shapes and numbers that reach the compiled model alike: pad to few lengths, pass numbers as tensors, or"
    " compile with dynamic=True; TORCH_LOGS=recompiles names what differs",
)


def guard_of(reason: str) -> Guard:
    """What a guard is about: ``tensor 'x' size mismatch at index 1`` -> dimension 1 of x differs."""
    text = _LOCAL.sub(r"\1", reason)
    for pattern, guard in _GUARDS:
        found = pattern.search(text)
        if found is not None:
            names = found.groupdict()
            return Guard(guard.differs.format(**names), guard.fix.format(**names))
    return _ANY
