"""What is said of logs of an H100 with one fact of the GPU altered: each is a fault that no log at hand has."""

from __future__ import annotations

import pytest

from tests.altered import altered
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.verdicts import fold


@pytest.mark.parametrize(
    ("name", "rule", "severity", "says", "is_first"),
    [
        ("beside_others", "neighbour", "critical", "the training waits meanwhile", True),
        ("beside_others_at_a_time", "neighbour", "info", "the training may wait meanwhile", False),
        ("hot", "throttled", "critical", "thermal (hardware) (1100 of 1980 MHz)", True),
        ("hot_while_waiting", "throttled", "critical", "thermal (hardware)", False),
    ],
)
def test_a_fact_of_the_gpu_that_was_altered_is_told(
    name: str, rule: str, severity: str, says: str, is_first: bool
) -> None:
    findings = fold(altered(name))[1]
    found = next(finding for finding in findings if finding.rule == rule)
    assert found.severity == severity and says in found.headline
    assert (findings[0] is found) or not is_first


def test_another_program_on_a_gpu_that_idles_for_most_of_the_time_is_not_told() -> None:
    assert "neighbour" not in {finding.rule for finding in fold(altered("beside_others_while_idle"))[1]}


@pytest.mark.parametrize(
    ("name", "least"), [("no_copies", 0.7), ("copies_over_c2c", 0.0), ("few_copies", 0.15), ("slow_copies", 0.0)]
)
def test_a_gpu_that_copies_for_most_of_the_time_does_not_idle(name: str, least: float) -> None:
    session, _ = fold(altered(name))
    steps = evidence_of(session.over("whole"), session.trainer() or 0).gpu.steps
    assert steps is not None
    assert steps.idle.low == pytest.approx(least, abs=0.05)
