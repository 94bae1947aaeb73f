"""The report in three sentences: what ran, what it waits for, what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tuimon.diagnosis.rulebook import is_minor
from tuimon.records import Exit
from tuimon.views.finding_text import headline_text, none_found, only_minor, rule_title, times_text, verdict_name
from tuimon.views.format import count, duration, ms, percent, plain, rate, shorten
from tuimon.views.report.rows_json import Json
from tuimon.views.state_text import last_state_text

#: The most characters of a sentence that comes from a command line or a headline.
_LONGEST = 240
_IS = "The verdict is"


def summary_of(report: dict[str, Json]) -> str:
    """Three sentences, whatever the run was."""
    texts = [shorten(plain(sentence(report)), _LONGEST) for sentence in (_run, _verdict, _advice)]
    return " ".join(text if text.endswith((".", "…")) else f"{text}." for text in texts)


def _run(report: dict[str, Json]) -> str:
    run, steps = report["run"], report["steps"]
    name = started_program(run["command"])
    if not steps["count"]:
        if report["phases"]:
            return (
                f"{name} ran for {duration(run['duration_s'])}; its phases are inferred from samples: {_shares(report)}"
            )
        return f"{name} was recorded for {duration(run['duration_s'])}, and no training step was seen"
    made = f"{name} made {_steps(report)}{_ranks(report)}"
    if not report["phases"]:
        return made
    return f"{made} (median {ms(steps['median_ms'])}, {rate(steps['per_second'])}): {_shares(report)}"


def _steps(report: dict[str, Json]) -> str:
    """``11 398 steps in 1m12s``; of a training that had run before it was attached to, those that were seen."""
    total, span = report["steps"]["count"], report["span"]
    if report["run"]["mode"] == "run" or span is None or not span["first_step"]:
        return f"{count(total)} step{'' if total == 1 else 's'} in {duration(report['run']['duration_s'])}"
    seen = count(total - span["first_step"])
    return f"{seen} steps in {duration(span['seconds'])}, from step {count(span['first_step'])} on"


def _ranks(report: dict[str, Json]) -> str:
    """`` on each of 4 ranks``, ``, one of 2 trainings side by side``, both, or neither."""
    trainings = report.get("trainings", ())
    known = report.get("ranks_summary", {}).get("count", len(report["ranks"]))
    known = next((each["ranks"] for each in trainings if each["in_focus"]), known)
    ranks = f" on each of {known} ranks" if known > 1 else ""
    return ranks + (f", one of {len(trainings)} trainings side by side" if trainings else "")


def _shares(report: dict[str, Json]) -> str:
    in_steps = (phase for phase in report["phases"] if phase["name"] != "eval")
    phases = sorted(in_steps, key=lambda phase: -phase["share"])[:3]
    return ", ".join(f"{phase['name']} {percent(phase['share'])}" for phase in phases)


def started_program(command: list[str]) -> str:
    """The script or module that was started, whatever launched it."""
    script = next((word for word in command if word.endswith(".py")), None)
    module = next((name for flag, name in pairwise(command) if flag == "-m"), None)
    return os.path.basename(script or module or (command[0] if command else "")) or "the training"


def _verdict(report: dict[str, Json]) -> str:
    if not report["findings"]:
        started = report["steps"]["count"] or report["phases"]
        return none_found(report) if started else last_state_text(report["state"])
    first, title = report["findings"][0], rule_title(report["findings"][0]["rule"])
    says = f"{_IS} {title}:" if has_verdict(report["findings"]) else f"{only_minor(first).rstrip('.')}: {title},"
    return f"{says} {headline_text(first['headline'], first['where'])}"


def _advice(report: dict[str, Json]) -> str:
    if not report["findings"] and not report["phases"]:
        return "To do: record a run with more steps"
    if not report["findings"] or not report["findings"][0]["fixes"]:
        return "There is nothing to change"
    action, estimated, low, high = report["findings"][0]["fixes"][0].values()
    gain = f"; that makes training {times_text(estimated, low, high)}" if estimated else ""
    return f"To do: {plain(action)}{gain}"


#: The end of a log that holds none.
NO_END = "the recording stops before the end of the run"


def end_of(run: Mapping[str, Json]) -> Exit | None:
    """The end of the run of a report; None if its log ends before."""
    if not run["ended"]:
        return None
    known = {name: run[name] for name in ("exit_code", "signal", "last_line")}
    return Exit(t=0.0, pid=0, **known, **(run["raised_at"] or {}))


def has_verdict(findings: Sequence[Mapping[str, Json]]) -> bool:
    """True if the first finding is the verdict: there is one, and its fix gains enough."""
    return bool(findings) and not is_minor(findings[0]["rule"], findings[0]["severity"])


def final_verdict(findings: Sequence[Mapping[str, Json]]) -> str:
    """The verdict that stands, as ``verdict_name`` writes it."""
    if not has_verdict(findings):
        return verdict_name(None)
    first = findings[0]
    return verdict_name(f"{first['rule']}/{first['cause']}" if first["cause"] else str(first["rule"]))
