"""Each pair of code on the pages of rules: the rule fires before, and not after."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explain_pairs import recorded
from tests.explain_pairs.pairs import Pair, When, all_pairs
from tests.explain_pairs.recorded import LOGS, PROGRAMS, is_recorded, log_of, program, records_of
from tests.explain_pairs.simulated import simulated_records
from tuimon.diagnosis.explain.page import page_of
from tuimon.records import Exit, Steps

#: Fewer would be no training.
_LEAST_STEPS = 8
_HANG_BEFORE_STEPS = {("hang_1", "before")}

each_side = pytest.mark.parametrize(
    ("pair", "when"),
    [(pair, when) for pair in all_pairs() for when in ("before", "after")],
    ids=lambda value: value.name if isinstance(value, Pair) else value,
)


@each_side
def test_the_rule_fires_before_and_not_after(pair: Pair, when: When) -> None:
    if is_recorded(pair, when):
        log = log_of(pair, when)
        assert log.exists(), f"no log of this code: python -m tests.explain_pairs --record {pair.name}"
        records = list(records_of(pair, log))
    else:
        records = simulated_records(pair, when)
    made = sum(record.count for record in records if isinstance(record, Steps))
    assert made >= _LEAST_STEPS or (pair.name, when) in _HANG_BEFORE_STEPS
    assert all(record.exit_code == 0 for record in records if isinstance(record, Exit))
    finding = pair.finding(records)
    assert (finding is not None) == (when == "before")
    if finding is not None and pair.code.language == "python":
        lines = {line.strip() for line in _code_of(pair, when).splitlines()}
        assert {place.source.strip() for place in finding.where if place.source} <= lines


def _code_of(pair: Pair, when: When) -> str:
    """All code that a place may name."""
    if not is_recorded(pair, when):
        return pair.text(when)
    return program(pair, when) + (PROGRAMS / "course.py").read_text()


def test_no_log_is_of_code_that_is_gone() -> None:
    expected = {log_of(pair, when) for pair in all_pairs() for when in ("before", "after") if is_recorded(pair, when)}
    assert sorted(set(LOGS.glob("*.zst")) - expected) == []


def test_each_cause_of_a_wait_for_data_has_its_pair() -> None:
    page = page_of("input_bound")
    assert {code.cause for code in page.code} == set(page.causes)


def test_a_trial_leaves_the_logs_of_the_tests_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "LOGS", tmp_path / "kept")
    monkeypatch.setattr(recorded, "_run", lambda _rule, _script, raw: raw.write_bytes(b"{}\n"))
    recorded.LOGS.mkdir()
    pair = all_pairs()[2]
    kept = recorded.LOGS / f"{pair.name}.before.0123.jsonl.zst"
    kept.write_bytes(b"a log")
    recorded.record(pair, "before", tmp_path / "run.jsonl.zst")
    assert (tmp_path / "run.jsonl.zst").exists() and kept.exists()
    recorded.record(pair, "before", recorded.LOGS / f"{pair.name}.before.4567.jsonl.zst")
    assert not kept.exists()
