"""Syntax of single lines of the user's code; loads Python's parser, so import it late."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

#: The head of a block, which is no statement without a body.
_HEAD = re.compile(r"(?:async )?(?:class|def|elif|for|if|while|with)\b.*:$", re.DOTALL)
#: A block's head that may have its body on the same line.
_BARE_HEAD = re.compile(r"(?:else|finally|try)\s*:\s*")
#: How a further line of a condition begins.
_CONDITION = re.compile(r"(?:and|or)\b")
_STRING_OR_COMMENT = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|#.*""")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def parsed_line(source: str) -> ast.Module | None:
    """A line's syntax tree; None of a part of a statement, or of a line that was cut."""
    text = source.removeprefix("el") + " pass" if _HEAD.match(source) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's code, which is not ours to judge
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parsed_part(source: str) -> tuple[ast.Module, str] | None:
    """A line's syntax tree and the text that its positions refer to, also of a part of a statement.

    ``_`` stands for operands on other lines: ``.mean().item())`` becomes ``(_ .mean().item())``.
    """
    for text in (source, *_completions(source)):
        tree = parsed_line(text)
        if tree is not None:
            return tree, text.removeprefix("el") if _HEAD.match(text) else text
    return None


def without_comment(source: str) -> str:
    """A line without the comment at its end."""
    return _STRING_OR_COMMENT.sub(r"\1", source).rstrip()


def _completions(source: str) -> Iterator[str]:
    """Statements that a line may be a part of."""
    line = without_comment(_BARE_HEAD.sub("", source)).rstrip(" \\")
    opening, closing = _other_brackets(line)
    yield f"{opening}{line}{closing}"
    yield f"{opening}{line}{closing}:"
    part = line.rstrip(":")
    head, end = ("if ", ":") if _CONDITION.match(line) else ("", "")
    for before in ("", "_ "):
        for after in ("", " _", " else _"):
            yield f"{head}{opening}{before}{part}{after}{closing}{end}"
    yield f"{{{opening}{part}{closing}}}"


def _other_brackets(line: str) -> tuple[str, str]:
    """The brackets of a line that are on the lines before it and on those after it."""
    opening, closing = "", ""
    for character in _STRING_OR_COMMENT.sub("", line):
        if character in _BRACKETS:
            closing = _BRACKETS[character] + closing
        elif character in _BRACKETS.values():
            if closing.startswith(character):
                closing = closing[1:]
            else:
                opening = next(key for key, value in _BRACKETS.items() if value == character) + opening
    return opening, closing
