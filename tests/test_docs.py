"""The tests that the docs name as proof exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def _tests_of(file: str) -> frozenset[str]:
    text = (ROOT / file).read_text() if (ROOT / file).exists() else ""
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/reliability.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = _NAMED.findall((ROOT / page).read_text())
    assert len(named) > 10
    assert [f"{file}::{name}" for file, name in named if name not in _tests_of(file)] == []


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/reliability.md"])
def test_every_row_names_a_test(page: str) -> None:
    """Rows of tables, but for their heads, and for the one row that says against whom there is no defence."""
    rows = [line for line in (ROOT / page).read_text().splitlines() if re.match(r"\| (?!fault|#|who)", line)]
    assert [row for row in rows if not _NAMED.search(row) and not row.startswith("| 10 |")] == []
