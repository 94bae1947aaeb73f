"""Write the JSON Schemas of what tuimon writes for programs, made of the types it is written with: ``make schema``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tuimon.diagnosis.explain.page import Explained
from tuimon.records import AnyRecord
from tuimon.views.comparison.result import Comparison
from tuimon.views.report_types import Report

FOLDER = Path(__file__).parent / "schema"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: File name -> type, and what it describes.
_TYPES: dict[str, tuple[object, str]] = {
    "log": (
        AnyRecord,
        "One line of a tuimon log; the first is a header. Types that a reader does not know may follow.",
    ),
    "report": (Report, "What `tuimon report --format json` writes of one log; of several, a list of these."),
    "diff": (Comparison, "What `tuimon diff --format json` writes."),
    "explain": (Explained, "What `tuimon explain --format json` writes."),
}


def texts() -> dict[Path, str]:
    """What each file has to hold."""
    return {
        FOLDER / f"{name}.schema.json": msgspec.json.format(msgspec.json.encode(schema), indent=1).decode() + "\n"
        for name, schema in schemas().items()
    }


def schemas() -> dict[str, dict[str, Any]]:  # Any: JSON
    """Each schema by its name."""
    return {name: _schema(name, *described) for name, described in _TYPES.items()}


def _schema(name: str, of: object, description: str) -> dict[str, Any]:
    head = {"$schema": _DIALECT, "title": f"tuimon {name}", "description": description}
    schema = msgspec.json.schema(of)
    kinds = {kind.__name__: kind for kind in _below(msgspec.Struct)}
    for kind_name, written in schema["$defs"].items():
        _describe_fields(written, kinds.get(kind_name))
    return head | {key: _dedented(value) for key, value in schema.items()}


def _below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _describe_fields(schema: dict[str, Any], kind: type | None) -> None:
    """Give each field of a type the comment next to it as its description."""
    if kind is None or not issubclass(kind, msgspec.Struct):
        return
    comments = {name: text for each in reversed(kind.__mro__) for name, text in _comments(each).items()}
    for place, field in enumerate(msgspec.structs.fields(kind)):
        if field.name in comments:
            row = schema["properties"][field.encode_name] if "properties" in schema else schema["prefixItems"][place]
            row["description"] = comments[field.name]


@cache
def _comments(kind: type) -> dict[str, str]:
    """The comment of each field: behind it, or in the lines above it."""
    if not kind.__module__.startswith("tuimon."):
        return {}
    source = inspect.getsource(kind)
    lines, comments = source.splitlines(), {}
    for field in ast.walk(ast.parse(source)):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            above = field.lineno - 1
            while lines[above - 1].strip().startswith("#"):
                above -= 1
            found = [line.strip("#: ") for line in lines[above : field.lineno - 1]]
            last = lines[(field.end_lineno or field.lineno) - 1]
            found += [last.partition("  # ")[2]]
            if text := " ".join(filter(None, found)):
                comments[field.target.id] = text
    return comments


def _dedented(schema: object) -> object:
    """Part of a schema, its descriptions without the indentation of docstrings, which Python 3.13 leaves out itself."""
    match schema:
        case dict():
            return {
                key: inspect.cleandoc(value) if key == "description" and isinstance(value, str) else _dedented(value)
                for key, value in schema.items()
            }
        case list():
            return [_dedented(each) for each in schema]
        case _:
            return schema


if __name__ == "__main__":
    for path, text in texts().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
