"""The rows of all parts, in a file: each is there as soon as it is measured, whatever becomes of its part."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.gpu import program_runs
from bench.gpu.program_runs import ProgramRun
from bench.table import HEADINGS, Row, aligned, cells

FILE = "rows.jsonl"


class Keyed(NamedTuple):
    """A row that takes the place of an earlier one with the same key."""

    key: str
    row: Row


AnyRow = Row | Keyed | ProgramRun


class Rows:
    """Adds the rows of one part."""

    def __init__(self, out: Path, part: str) -> None:
        self._path = out / FILE
        self._part = part

    def add(self, row: AnyRow) -> None:
        """Write it, and print it."""
        key, texts = _line(row)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"part": self._part, "key": key, "cells": texts}) + "\n")
        print("  ".join([self._part, *filter(None, texts)]), file=sys.stderr, flush=True)


def _line(row: AnyRow) -> tuple[str, Sequence[str]]:
    match row:
        case Keyed(key, keyed):
            return key, cells(keyed)
        case ProgramRun():
            return row.program, row.cells()
        case _:
            return row.what, cells(row)


def tables(out: Path) -> str:
    """All that was measured so far, as text: a table for each set of headings."""
    lines: dict[tuple[str, str], list[str]] = {}
    for text in (out / FILE).read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        lines[line["part"], line["key"]] = line["cells"]
    return "\n\n".join(_tables(lines.values()))


def _tables(lines: Iterable[list[str]]) -> Iterable[str]:
    for headings in (HEADINGS, program_runs.HEADINGS):
        found = [line for line in lines if len(line) == len(headings)]
        if found:
            yield aligned([headings, *found])
