"""The report: the JSON contract, text for an e-mail, and both of recorded runs."""

import html
import math
import re
from pathlib import Path

import msgspec
import pytest

from tests.recorded_logs import log_path
from tests.session import records
from tests.sources.log.literal_log import write
from tests.verdicts import accepted_reports
from tests.views.metrics.figures import whole_session
from tuimon.diagnosis.finding import Finding, FindingJson
from tuimon.diagnosis.verdicts import Verdicts, fold
from tuimon.records import Exit, Notice, Record
from tuimon.sources.log.source import read_records
from tuimon.text import percent
from tuimon.views.report.page import as_html, html_page
from tuimon.views.report.report import parts_of, report_of
from tuimon.views.report.sentences import final_verdict
from tuimon.views.report.write import text_report
from tuimon.views.report_types import Report

PHASES = {"data": 62, "forward": 11, "backward": 16, "optimizer": 6, "other": 5}


def run() -> list[Record]:
    return [
        records.header(),
        records.process(),
        *records.loop(60, PHASES),
        Notice(t=60.0, pid=0, source="gpu", level="info", message="no [bold]driver\x1b[1m"),
        Exit(t=61.0, pid=100, exit_code=0),
    ]


def test_of_a_training_attached_to_the_steps_that_were_seen_are_summed_up() -> None:
    """It had made 5,000 before: three windows of ten steps are no 5,040 in 3 s."""
    seen = [records.steps(float(t), PHASES, first_index=5000 + 10 * t) for t in range(1, 4)]
    header = msgspec.structs.replace(records.header(), mode="attach")
    session, findings = fold([header, records.process(), *seen], verdicts := Verdicts())
    report = report_of(session, findings, "run.jsonl", verdicts.changes)
    assert report.summary.startswith("train.py made 30 steps in 3.0s, from step 5,010 on (median"), report.summary
    assert report.goodput is not None and report.goodput.text == "of 3.0s watched, 100 % in steps"


@pytest.mark.parametrize(
    ("windows", "ended", "name"), [(29, False, "run so far"), (40, False, "last 30s"), (40, True, "whole run")]
)
def test_titles_name_the_time_that_figures_cover(windows, ended, name) -> None:
    end = [Exit(t=float(windows), pid=100, exit_code=0)] if ended else []
    session, _ = fold([records.header(), records.process(), *records.loop(windows, PHASES), *end])
    assert parts_of(session.shown()).span_name == name


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(write(tmp_path / "run.jsonl", *run()))


def test_text_fits_an_email(log: str, call) -> None:
    out = call("report", log).out
    assert max(map(len, out.splitlines())) <= 78
    assert "\x1b" not in out
    assert "no [bold]driver" in out
    assert "600 steps" in out
    assert "INPUT-BOUND" in out.split("\n\n")[1]
    assert any("data" in line and "62 %" in line for line in out.splitlines())


def test_it_names_the_hardware_and_the_versions() -> None:
    session = whole_session()
    assert session.header is not None
    versions = {"tuimon": "0", "driver": "550.54.15"}
    session.add(msgspec.structs.replace(session.header, versions=versions))
    session.add(records.process(4242, rank=0, gpu_uuids=["GPU-0", "GPU-1"], torch="2.11.0+cu130", python="3.12.3"))
    report = report_of(session, [])
    facts = report.facts
    assert (facts.driver, facts.cuda, facts.torch, facts.ranks) == ("550.54.15", "13.0", "2.11.0+cu130", 1)
    head = " ".join(text_report(report).split("\n\n", 1)[0].split())
    assert (
        "2 × NVIDIA H100 80GB HBM3, 2 CPU cores, driver 550.54.15, CUDA 13.0, torch 2.11.0+cu130, Python 3.12.3" in head
    )
    assert report.run.started == "2023-11-14T22:13:20Z" and report.run.duration_s == 12.0


ENDED = Exit(t=1.0, pid=100, exit_code=3, last_line="KeyError", file="/x/train.py", line=7, function="main")


def test_a_run_without_steps() -> None:
    session, findings = fold([records.header(), ENDED])
    report = report_of(session, findings, "x")
    assert report.phases == []
    assert report.steps.total == 0
    assert report.steps.median_ms is None
    text = text_report(report)
    assert "No training step was seen.\nIt ended after 1.0s." in text
    assert "No finding" not in text  # without a step there is nothing to find one in
    assert report.state.name == "ended"
    assert "\nended with exit code 3 at main() train.py:7: KeyError\n" in text


def test_a_single_step_without_times_is_too_few_for_a_verdict() -> None:
    """It was open, and ended with the run."""
    opened = msgspec.structs.replace(
        records.steps(3.0, {}, count=1, timed=0), total_ns=0, slowed=1, slowed_ns=2 * 10**9
    )
    session, _ = fold([records.header(), records.process(), opened, Exit(t=3.0, pid=100, exit_code=143)])
    report = report_of(session, (), "run.jsonl")
    assert report.summary.startswith(
        "train.py made 1 step in 3.0s. Too few steps to say what holds this training back."
        " To do: record a run with more steps."
    )
    text = text_report(report)
    assert "Too few steps to say what holds this training back." in text and "1 step," in text
    assert "No finding" not in text


@pytest.mark.parametrize(
    "names, code", [("input_bound", 1), ("no_workers,hang", 1), ("critical", 1), ("warning,side_work", 0)]
)
def test_fail_on_a_finding_is_told_by_the_exit_code(log: str, names: str, code: int, call) -> None:
    shown = call("report", log, "--fail-on", names, code=code)
    assert ("INPUT-BOUND" in shown.out, "input_bound (critical): 62 % of each step" in shown.err) == (True, bool(code))


def test_the_verdict_that_stands() -> None:
    side_work = Finding(rule="side_work", cause="evaluation", severity="critical", headline="")
    minor = msgspec.structs.replace(side_work, severity="info")
    assert final_verdict([FindingJson.of(side_work)]) == "SIDE-WORK (evaluation)"
    assert final_verdict([FindingJson.of(minor)]) == final_verdict([]) == "nothing found"


#: The phases that a rule's share is of.
PHASES_OF_RULE = {
    "input_bound": ("data",),
    "side_work": ("other",),
    "optimizer_bound": ("optimizer",),
    "compute_bound_cpu": ("forward", "backward", "optimizer"),
}


REPORTS = accepted_reports("logs")
#: Four digits are kept of each number.
ROUNDED = 1e-3
of_each_log = pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)


@of_each_log
def test_headline_share_and_evidence_are_those_of_the_phases_below(report: Report) -> None:
    shares = {phase.name: phase.share for phase in report.phases}
    of_step = [phase.ms_per_step for phase in report.phases if phase.name != "eval"]
    step_ms = sum(of_step) if report.steps.total else None  # without markers
    for finding in report.findings:
        if finding.rule not in PHASES_OF_RULE:
            continue
        names = ("eval",) if finding.cause == "evaluation" else PHASES_OF_RULE[finding.rule]
        named = sum(shares[name] for name in names)
        if finding.rule == "compute_bound_cpu" or "gpu_waits_at_most" in finding.evidence:
            # of these phases what nothing else holds, or what the GPU idles
            assert finding.share_of_step <= named + ROUNDED
        elif all(phase.gpu_ms_per_step is None for phase in report.phases):
            assert finding.share_of_step == pytest.approx(named, abs=ROUNDED)
        assert percent(finding.share_of_step) in finding.headline
        assert finding.evidence.get("step_ms", step_ms) == (step_ms and pytest.approx(step_ms, rel=ROUNDED))


@of_each_log
def test_severity_follows_the_gain_and_the_first_finding_gains_most(report: Report) -> None:
    gains = {"critical": [], "warning": []}  # type: dict[str, list[float]]
    for finding in report.findings:
        least = finding.speedup_at_least
        if least is None or finding.severity not in gains:
            continue
        gains[finding.severity].append(least)
        assert least >= (1.2 if finding.severity == "critical" else 1.05)
    assert all(each == sorted(each, reverse=True) for each in gains.values())
    if any(finding.severity in gains for finding in report.findings):
        assert report.findings[0].severity in gains


@of_each_log
def test_the_best_fix_gains_no_more_than_the_share_of_the_step_is_worth(report: Report) -> None:
    for finding in report.findings:
        share = finding.share_of_step
        for gain in (
            getattr(finding.fixes[0], end) for end in ("low", "estimated_speedup", "high") if share is not None
        ):
            assert gain is None or gain * (1.0 - share) <= 1.0 + ROUNDED


@of_each_log
def test_fixes_are_ranges_whose_best_is_that_of_the_finding(report: Report) -> None:
    for finding in report.findings:
        assert finding.fixes or not finding.action
        if finding.fixes:
            best = finding.fixes[0]
            assert best.action == finding.action
            assert best.estimated_speedup == finding.estimated_speedup
            assert best.low == (finding.speedup_at_least if best.estimated_speedup else None)
        for fix in finding.fixes:
            if fix.estimated_speedup is not None:
                assert 1.0 <= fix.low <= fix.estimated_speedup <= min(fix.high or math.inf, (2.0 + ROUNDED) * fix.low)


@of_each_log
def test_phases_are_of_the_span_that_the_report_names(report: Report) -> None:
    span = report.span
    assert (span is None) == (report.steps.total == 0)  # without markers
    if span is not None:
        assert 0 <= span.first_step <= span.last_step == report.steps.total - 1
        before_s = 2.0 if report.run.mode == "attach" else 0.0  # markers of steps before it was attached to
        assert 0 < span.seconds <= report.run.duration_s + before_s
    assert sum(p.share for p in report.phases if p.name != "eval") == pytest.approx(1, abs=ROUNDED)


@pytest.mark.parametrize("name", ["slow_rank", "h100_seed_dummy_loader_pyspy", "eval_every_few_steps"])
def test_its_page_names_each_finding_and_worker(name: str) -> None:
    page = html_page(*fold(read_records(str(log_path(name)))), "run.jsonl")
    text = html.unescape(re.sub(r"<[^>]+>", "\n", as_html([page])))
    lines = {line.strip() for line in text.splitlines()}
    for finding in page.report.findings:
        assert finding.headline.lower() in text.lower()
    (focus,) = (rank for rank in page.report.ranks if rank.in_focus)
    for loader in focus.loaders:
        assert {worker.name for worker in loader.workers[:16]} <= lines
