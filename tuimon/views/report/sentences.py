"""The report in three sentences (the run, the verdict, the advice); its verdict and its end in words."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.diagnosis.finding import FindingJson
from tuimon.diagnosis.rulebook import is_minor
from tuimon.views.finding_text import gain_text, headline_text, none_found, only_minor, rule_title, verdict_name
from tuimon.views.format import count, duration, ms, percent, plain, rate, shorten
from tuimon.views.report_types import Phase, RankShare, Report
from tuimon.views.run_text import last_state_text, started_program

_IS = "The verdict is"


def summary_of(report: Report) -> str:
    """Three sentences, whatever the run was."""
    # a command line or a headline may be long
    texts = [shorten(plain(sentence(report)), 240) for sentence in (_run, _verdict, _advice)]
    return " ".join(text if text.endswith((".", "…")) else f"{text}." for text in texts)


def _run(report: Report) -> str:
    run, steps, phases = report.run, report.steps, report.phases
    name = started_program(run.command) or "the training"
    largest = sorted((phase for phase in phases if phase.name != "eval"), key=lambda phase: -phase.share)[:3]
    shares = shares_text(largest, ", ")
    if not steps.total:
        if phases:
            return f"{name} ran for {duration(run.duration_s)}; its phases are inferred from samples: {shares}"
        return f"{name} was recorded for {duration(run.duration_s)}, and no training step was seen"
    known = sum(rank.rank is not None and rank.state != "restarted" for rank in report.ranks)
    known = next((each.ranks for each in report.trainings if each.in_focus), known)
    ranks = f" on each of {known} ranks" if known > 1 else ""
    beside = f", one of {len(report.trainings)} trainings side by side" if report.trainings else ""
    made = f"{name} made {_steps(report)}{ranks}{beside}"
    return f"{made} (median {ms(steps.median_ms)}, {rate(steps.per_second)}): {shares}" if phases else made


def _steps(report: Report) -> str:
    """``11,398 steps in 1m12s``; for a training that ran before tuimon attached, only the steps seen since."""
    total, span = report.steps.total, report.span
    if report.run.mode == "run" or span is None or not span.first_step:
        return f"{count(total)} step{'' if total == 1 else 's'} in {duration(report.run.duration_s)}"
    seen = count(total - span.first_step)
    return f"{seen} steps in {duration(span.seconds)}, from step {count(span.first_step)} on"


def shares_text(phases: Sequence[Phase | RankShare], between: str = " ") -> str:
    """``data 62 % forward 11 %``: names and shares."""
    return between.join(f"{phase.name} {percent(phase.share)}" for phase in phases)


def verdict_text(report: Report) -> str:
    """The verdict in a sentence: the first headline, or why there is none."""
    if not report.findings:
        return none_found(report) if report.has_steps else f"No training step was seen. {last_state_text(report.state)}"
    first = report.findings[0]
    return headline_text(first) if has_verdict(report.findings) else only_minor(first)


def _verdict(report: Report) -> str:
    if not report.findings:
        return none_found(report) if report.has_steps else last_state_text(report.state)
    first, title = report.findings[0], rule_title(report.findings[0].rule)
    says = f"{_IS} {title}:" if has_verdict(report.findings) else f"{only_minor(first).rstrip('.')}: {title},"
    return f"{says} {headline_text(first)}"


def _advice(report: Report) -> str:
    if not report.findings and not report.phases:
        return "To do: record a run with more steps"
    if not report.findings or not report.findings[0].fixes:
        return "There is nothing to change"
    fix = report.findings[0].fixes[0]
    gain = f"; that makes training {gain_text(fix)}" if fix.estimated_speedup else ""
    return f"To do: {plain(fix.action)}{gain}"


#: Shown if a log does not hold the end of its run.
NO_END = "the recording stops before the end of the run"


def has_verdict(findings: Sequence[FindingJson]) -> bool:
    """True if there is a finding and the first one, the verdict, is not minor."""
    return bool(findings) and not is_minor(findings[0])


def final_verdict(findings: Sequence[FindingJson]) -> str:
    """The verdict on the whole run, as ``verdict_name`` writes it."""
    if not has_verdict(findings):
        return verdict_name(None)
    first = findings[0]
    return verdict_name(f"{first.rule}/{first.cause}" if first.cause else first.rule)
