"""Figures that a report has in several places agree, in the accepted reports of all recorded runs."""

import pytest

from tests.verdicts import accepted_reports
from tuimon.threshold import SMALL

REPORTS = {
    name: report
    for corpus in ("altered", "logs", "pairs", "gpu_recordings")
    for name, report in accepted_reports(corpus).items()
}
DIGITS = 0.002  # accepted figures have four digits


def test_phases_add_up_to_the_step_and_parts_to_the_wall_time():
    for name, report in REPORTS.items():
        step = [phase for phase in report.phases if phase.name != "eval"]
        mean_ms = sum(phase.ms_per_step or 0.0 for phase in step)
        assert sum(phase.share for phase in step) == pytest.approx(1.0 if step else 0.0, abs=DIGITS), name
        for phase in step:
            if phase.ms_per_step is not None:
                assert phase.ms_per_step == pytest.approx(phase.share * mean_ms, abs=DIGITS * mean_ms), name
        if report.goodput is not None:
            assert sum(part.share for part in report.goodput.parts) == pytest.approx(1.0, abs=DIGITS), name


def test_no_fix_gains_more_than_its_findings_share_is_worth():
    fixes = [(name, each, fix) for name, report in REPORTS.items() for each in report.findings for fix in each.fixes]
    assert len(fixes) > 300
    for name, finding, fix in fixes:
        ends = [gain for gain in (fix.low, fix.estimated_speedup, fix.high) if gain is not None]
        assert ends == sorted(ends) and all(gain >= 1.0 for gain in ends), (name, fix)
        if finding.share_of_step is not None and finding.share_of_step < 1.0:
            most = 1.0 / (1.0 - finding.share_of_step)
            assert all(gain <= most * (1.0 + DIGITS / (1.0 - finding.share_of_step)) for gain in ends), (name, fix)


def test_a_wait_for_data_is_as_long_as_the_data_phase_unless_another_finding_may_have_the_rest():
    """With a GPU it is the GPU's wait."""
    waits = [
        (name, phase.share, finding)
        for name, report in REPORTS.items()
        for phase in report.phases
        for finding in report.findings
        if (phase.name, finding.rule) == ("data", "input_bound") and "each step waits for data" in finding.headline
    ]
    assert len(waits) > 20
    for name, share, finding in waits:
        assert finding.headline.startswith(f"{100 * finding.share_of_step:.0f} % of each step"), name
        assert not DIGITS < abs(share - finding.share_of_step) < SMALL, name
