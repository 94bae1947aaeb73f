"""The words that an anonymous log keeps: those that tuimon's rules know, and Python's own.

A verdict can rest on no other name: ``loss``, ``item`` and ``forward`` decide something, a project's name does not.
So the words are read from the code that judges, and a rule that asks for another name needs no list beside it.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import os
import re
import sys
from collections.abc import Iterator
from functools import cache

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
#: What judges, below the package.
_JUDGES = (
    *("code_origin.py", "gpu_call_table.py", "gpu_calls.py", "library_code.py", "line_syntax.py", "records.py"),
    *("tensor_syntax.py", "torch_code.py", "session", "diagnosis"),
)
#: What writes notices.
_WRITERS = ("agent", "launch", "monitor", "sources")
#: Pages for people: they quote code of all kinds.
_LEFT_OUT = os.path.join("diagnosis", "explain")
#: Of a pattern: escapes, flags and quantifiers, which are no letters of a word.
_NO_LETTERS = re.compile(r"\\[A-Za-z]|\(\?[a-zA-Z]+\)|\{[\d,]+\}")
_CHOICE = re.compile(r"\[(\w)(\w)\]")
_CHUNK = re.compile(r"[^\W_]+")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


@cache
def of_rules() -> frozenset[str]:
    """In lower case: words of names and patterns in the rules, keywords, builtins, modules of the standard library."""
    found = {word for path in _files(_JUDGES) for text in _names(path) for word in _words(text)}
    python = (*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *sys.stdlib_module_names)
    return frozenset(found | {word for name in python for word in _words(name)} | {"py", "venv"})


@cache
def of_messages() -> frozenset[str]:
    """Beside these, all words of the code that writes notices: the rest of a notice is the user's paths and names."""
    found: set[str] = set()
    for path in _files(_WRITERS):
        with open(path, encoding="utf-8") as file:
            found.update(chunk.lower() for chunk in _CHUNK.findall(file.read()))
    return of_rules() | found


def _files(below: tuple[str, ...]) -> Iterator[str]:
    for name in below:
        top = os.path.join(_PACKAGE, name)
        if top.endswith(".py"):
            yield top
        for folder, _, files in os.walk(top):
            if not os.path.relpath(folder, _PACKAGE).startswith(_LEFT_OUT):
                yield from (os.path.join(folder, file) for file in files if file.endswith(".py"))


def _texts(path: str) -> Iterator[str]:
    """The string constants of a file, docstrings left out."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.value


def _names(path: str) -> Iterator[str]:
    """Those that are names or patterns, and no sentences."""
    return (text for text in _texts(path) if " " not in text.strip() or "\\" in text)


def _words(text: str) -> Iterator[str]:
    """The words of a text or pattern, in lower case, with each letter that is optional and without."""
    plain = _NO_LETTERS.sub(" ", text)
    for first in {_CHOICE.sub(r"\1", plain), _CHOICE.sub(r"\2", plain)}:
        for each in {re.sub(r"\w\?", "", first), first.replace("?", "")}:
            for chunk in _CHUNK.findall(each):
                yield chunk.lower()
                yield from (part.lower() for part in PARTS.findall(chunk) if len(part) > 1)
