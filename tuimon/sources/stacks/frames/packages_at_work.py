"""Which packages other than torch do the work of a line, where its text shows it: ``raw = zlib.decompress(packed)``.

A call into compiled code has no frame of its own, and such code often releases the GIL, as torch's does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from tuimon.line_syntax import parsed_line

#: Packages that compute, compress, read or wait for their caller, and release the GIL meanwhile.
_PACKAGES = re.compile(
    r"bz2|cv2|gzip|hashlib|http|io|lzma|numpy|pandas|PIL|polars|pyarrow|scipy|select|shutil|skimage|sklearn|socket|sqlite3"
    r"|subprocess|tarfile|time|urllib|zipfile|zlib"
)
#: Calls that turn a tensor into something else, and cost little if no GPU makes anybody wait.
_CONVERSIONS = re.compile(r"cpu|detach|item|numpy|size|tolist")
#: Names that Python itself knows and that compute nothing.
_BUILTINS = re.compile(r"bool|dict|enumerate|float|int|len|list|print|range|set|str|tuple|zip")


def packages_at_work(text: str, imports: Mapping[str, str]) -> str:
    """Packages that do all of a line's work, as far as its text shows, ``numpy, zlib``; "" where torch may, too.

    ``imports``: package by the name that stands for it in the line's file.
    """
    statement = parsed_line(text) if "(" in text and any(map(_PACKAGES.fullmatch, imports.values())) else None
    found = {_package(call, imports) for call in _calls(statement)} if statement is not None else {None}
    known = sorted(package for package in found - {""} if package is not None and _PACKAGES.fullmatch(package))
    return ", ".join(known) if len(known) == len(found - {""}) else ""


def _calls(statement: ast.Module) -> Iterator[ast.Call | None]:
    """The calls of a statement; None for what may be an operation of torch without one: ``a @ b``, ``scale * x``."""
    for node in ast.walk(statement):
        match node:
            case ast.Call():
                yield node
            case ast.BinOp(left, _, right) | ast.AugAssign(left, _, right):
                yield from _operations(left, right)
            case ast.Compare(left, _, others):
                yield from _operations(left, *others)
            case ast.UnaryOp(_, operand):
                yield from _operations(operand)


def _operations(*operands: ast.expr) -> Iterator[None]:
    yield from (None for operand in operands if not isinstance(operand, ast.Constant | ast.Call))


def _package(call: ast.Call | None, imports: Mapping[str, str]) -> str | None:
    """The package that a call is into; "" for one that costs nothing, None where nobody knows."""
    if call is None:
        return None
    at = function = call.func
    while isinstance(at, ast.Attribute):
        at = at.value
    name = at.id if isinstance(at, ast.Name) else ""
    if name in imports:
        return imports[name]
    if isinstance(function, ast.Attribute):
        costs_nothing = _CONVERSIONS.fullmatch(function.attr)
    else:
        costs_nothing = _BUILTINS.fullmatch(name)
    return "" if costs_nothing else None
