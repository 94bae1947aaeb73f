"""Syntax of single lines of the user's code; loads Python's parser, so import it late."""

from __future__ import annotations

import ast
import re
import warnings

#: The head of a block, which is no statement without a body.
_HEAD = re.compile(r"(?:async )?(?:class|def|elif|for|if|while|with)\b.*:$", re.DOTALL)


def parsed_line(source: str) -> ast.Module | None:
    """A line's syntax tree; None of a part of a statement, or of a line that was cut."""
    text = source.removeprefix("el") + " pass" if _HEAD.match(source) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's code, which is not ours to judge
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
