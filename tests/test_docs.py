"""The tests that the docs name as proof exist, and verdicts that they quote are those of the logs they name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tuimon.diagnosis.reading import fold
from tuimon.sources.log.reader import read_log
from tuimon.views.finding_text import rule_title, times_text

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


_QUOTED = re.compile(r"^> `(\w+)` ([A-Z-]+): (.+)$", re.MULTILINE)
_QUOTES = _QUOTED.findall((ROOT / "docs" / "questions.md").read_text())


@pytest.mark.parametrize(("log", "verdict", "headline"), _QUOTES)
def test_a_verdict_that_answers_a_question_is_that_of_its_log(log: str, verdict: str, headline: str) -> None:
    _, findings = fold(read_log(str(ROOT / f"tests/data/logs/{log}.jsonl.gz")))
    told = [(finding.rule.upper().replace("_", "-"), finding.headline) for finding in findings]
    assert (verdict, headline) in told


_TOLD = {
    "two slow DataLoader workers": "h100_seed_dummy_loader_pyspy",
    "an LSTM cell for each step of time": "h100_cell_by_cell",
    "batches of 77 MB from ordinary memory": "h100_pageable_images",
    "a loss over `errors[mask]`": "h100_masked_loss",
    "AdamW, 800 tensors one by one": "h100_adam_one_by_one",
    "autocast on a small model": "h100_amp_on_a_small_model",
}


@pytest.mark.parametrize("training", _TOLD)
def test_a_gain_that_the_readme_tells_is_that_of_its_log(training: str) -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"| {training} |"))
    _, findings = fold(read_log(str(ROOT / f"tests/data/logs/{_TOLD[training]}.jsonl.gz")))
    _, _, verdict, told, _, _ = map(str.strip, row.split("|"))
    assert verdict == rule_title(findings[0].rule)
    gains = times_text(*findings[0].fixes[0][1:4]).removesuffix(" times as fast")
    assert told.endswith(f", {gains}x")


def test_no_picture_loads_anything_from_elsewhere() -> None:
    pictures = list((ROOT / "docs").rglob("*.svg"))
    assert pictures
    loads = re.compile(r"""url\(["']?https?:|(?:href|src)=["']https?:|@import""")
    assert [path.name for path in pictures if loads.search(path.read_text())] == []
