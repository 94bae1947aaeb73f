"""Write the JSON Schemas of what tuimon writes for programs, made of the types it is written with: ``make schema``."""

from __future__ import annotations

import inspect
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
    return head | {key: _dedented(value) for key, value in msgspec.json.schema(of).items()}


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
