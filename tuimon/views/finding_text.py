"""Findings in words: a rule's title, the gain of a fix, the rules that could not judge, the evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from tuimon.text import at, code_place
from tuimon.threshold import HOLD_S, SMALL
from tuimon.views.format import (
    NAMED,
    NOTHING,
    celsius,
    duration,
    ms,
    number,
    percent,
    percent_range,
    phase_name,
    plain,
    says_nothing,
    size,
    watt,
)

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding, FindingJson, Fix, FixJson, Unjudged
    from tuimon.views.report_types import Report


def rule_title(rule: str) -> str:
    """A rule's name as people read it: ``INPUT-BOUND``."""
    return plain(rule).replace("_", "-").upper()


def is_probable(measuring_s: int | None) -> bool:
    """True if a verdict that has not yet held is shown as a probable one; ``measuring_s``: None once one has held."""
    return measuring_s is not None and measuring_s >= HOLD_S


def verdict_name(name: str | None) -> str:
    """``INPUT-BOUND (no workers)`` of ``input_bound/no_workers``; ``nothing found`` of None."""
    if name is None:
        return "nothing found"
    rule, _, cause = name.partition("/")
    return rule_title(rule) + (f" ({plain(cause).replace('_', ' ')})" if cause else "")


def headline_text(finding: Finding | FindingJson) -> str:
    """``GPU idle 84 % of each step: ..., at forward() net.py:16``: the headline with the first place, once."""
    unnamed = (f", at {at(place)}" for place in finding.where[:1] if code_place(place) not in finding.headline)
    return plain(finding.headline + "".join(unnamed))


def _range(low: float, high: float) -> tuple[str, str]:
    """Both ends of a gain; small gains with one more digit."""
    digits = 2 if high < 1.2 else 1
    return f"{low:.{digits}f}", f"{high:.{digits}f}"


NO_FINDING = "No finding: no rule sees anything that holds this training back."
TOO_FEW_STEPS = "Too few steps to say what holds this training back."
NO_TRAINING = "Only the pace is known: no batch, backward pass or update was seen in the steps."
ONLY_MINOR = "No finding whose fix gains 5 % or more."
#: An unknown gain is not a small one.
NONE_KNOWN = "No fix is known to gain 5 % or more; what the first one gains is unknown."
#: A gain is not small either if only its lower bound is.
NONE_SURE = "No fix is certain to gain 5 % or more."


def only_minor(finding: Finding | FindingJson) -> str:
    """The verdict on a training whose findings are all minor, given the first of them."""
    from tuimon.diagnosis.finding import WARNING_GAIN  # noqa: PLC0415  (loaded already if there is a finding; the first frame has none)

    estimated = finding.estimated_speedup
    if finding.fixes and estimated is None and finding.speedup_at_least is None:
        return NONE_KNOWN
    return NONE_SURE if (estimated or 1.0) >= WARNING_GAIN else ONLY_MINOR


def none_found(report: Report) -> str:
    """The verdict on a training in which no rule has found anything."""
    from tuimon.diagnosis.evidence.process import FIRST_STEPS  # noqa: PLC0415  (as above)

    if not report.phases or 0 < report.steps.total < FIRST_STEPS:
        return TOO_FEW_STEPS
    trains = any(phase.share for phase in report.phases if phase.name not in ("other", "eval"))
    longest = max(report.phases, key=lambda phase: phase.share)
    return (
        f"{NO_FINDING} The longest phase of a step is {longest.name} ({percent(longest.share)})."
        if trains
        else NO_TRAINING
    )


def gain_text(fix: Fix | FixJson) -> str:
    """``2.2x to 4.5x faster``, ``up to 4.5x faster``, or ``at least 3.8x faster`` if no upper end is known.

    Empty if nothing is known of the gain.
    """
    estimated, low, high = fix.estimated_speedup, fix.low, fix.high
    if not estimated:
        return f"not certain, up to {_range(high, high)[0]}x faster" if high is not None else ""
    least, most = _range(low or estimated, high or estimated)
    if high is None:
        return f"at least {least}x faster"
    return f"up to {most}x faster" if least == most or float(least) <= 1.0 else f"{least}x to {most}x faster"


def fix_text(fix: Fix | FixJson) -> str:
    """``make f() cheaper (2.2x to 4.5x faster)``: one fix with its gain, if known."""
    return plain(fix.action) + (f" ({gained})" if (gained := gain_text(fix)) else "")


def markdown_lines(finding: Finding | FindingJson) -> list[str]:
    """A finding, its place and its first fixes, as Markdown that is easy to read as plain text."""
    lines = [f"{rule_title(finding.rule)}: {plain(finding.headline)}"]
    for where in finding.where[:1]:
        source = f": `{plain(where.source).strip()}`" if where.source else ""
        lines.append(f"- at `{at(where)}`{source}")
    fixes = [fix_text(fix) for fix in finding.fixes[:NAMED] if fix.action]
    return lines + [f"- {'or' if number else 'fix'}: {text}" for number, text in enumerate(fixes)]


def rules_by_reason(unjudged: Iterable[Unjudged]) -> dict[str, list[str]]:
    """The rules that could not judge, by reason."""
    rules: dict[str, list[str]] = {}
    for each in unjudged:
        rules.setdefault(each.reason, []).append(each.rule)
    return rules


def sentence(text: str) -> str:
    """The text with a capital at its beginning, unless it begins with code: ``save() takes ...``."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


#: Suffix of a figure's name -> how its value is written, and what replaces the suffix; the first that fits counts.
_UNITS: tuple[tuple[str, Callable[[float], str], str], ...] = (
    ("gpu_ms_per_step", ms, "gpu_span_per_step"),  # idle time included
    ("_ms_per_step", ms, "_per_step"),
    ("_ms_per_batch", ms, "_per_batch"),
    ("_bytes_per_s", lambda value: f"{size(value)}/s", ""),
    ("_bytes", size, ""),
    ("_ratio", percent, ""),
    ("_share", percent, "_share"),
    ("_at_least", percent, "_at_least"),
    ("_at_most", percent, "_at_most"),
    ("_by_events", percent, "_by_events"),
    ("_by_nvml", percent, "_by_nvml"),
    ("_util", percent, "_util"),
    ("_ms", ms, ""),
    ("_us", lambda value: ms(value / 1000), ""),
    ("_mhz", lambda value: f"{value:.0f} MHz", ""),
    ("_w", watt, ""),
    ("_c", celsius, ""),
    ("_s", lambda value: duration(value) if value >= 0.1 else ms(1000 * value), ""),
)


def _percent_of(whole: str) -> Callable[[float], str]:
    return lambda value: f"{percent(value)} of the {whole}"


_TIME_SHARE, _DATA_SHARE, _CPU_SHARE = _percent_of("time"), _percent_of("time for data"), _percent_of("CPU time")
#: Figures whose names say too little without the code: the name to show, and the format of the value.
_NAMED: dict[str, tuple[str, Callable[[float], str]]] = {
    "worker_busy_ratio": ("workers make batches", _TIME_SHARE),
    "worker_cpu_ratio": ("worker CPU", lambda value: f"{percent(value)} of a core"),
    "hot_share": ("hottest function", _percent_of("samples")),
    "library_share": ("its part", _percent_of("user code's CPU time")),
    "kernel_share": ("in the kernel", _CPU_SHARE),
    "faults_hz": ("page faults", lambda value: f"{value:,.0f} a second"),
    "driver_share": ("in the driver", _CPU_SHARE),
    "python_share": ("interpreter", _percent_of("CPU time of both passes")),
    "pool_works_ratio": ("the pool works", _CPU_SHARE),
    "environment_share": ("environment", _DATA_SHARE),
    "policy_share": ("policy", _DATA_SHARE),
    "copy_share": ("copies", _DATA_SHARE),
    "caught_ooms": ("out-of-memory errors that were caught", number),
    "waiting_share": ("CPU waits for GPU", _TIME_SHARE),
    "queue_wait_share": ("waits for batches", _TIME_SHARE),
    "delay_ratio": ("waits for a core", _TIME_SHARE),
    "gil_ratio": ("holds the GIL", _TIME_SHARE),
    "others_hold_gil": ("others hold the GIL", _TIME_SHARE),
    "training_holds_gil": ("its own GIL time", _TIME_SHARE),
    "unexplained": ("unexplained waits", _TIME_SHARE),
    "compiling_share": ("compiles", _TIME_SHARE),
    "gc_share": ("garbage collection", _TIME_SHARE),
    "eval_share": ("evaluation", _TIME_SHARE),
    "calls_share": ("in collectives", _TIME_SHARE),
    "waiting_in_backward_share": ("waits in backward", _TIME_SHARE),
    "waits_for_later_ranks_at_least_share": ("waits for others", lambda value: f"at least {percent(value)}"),
    "last_share": ("late in", _percent_of("steps")),
    "throttled_share": ("clocks held down", _TIME_SHARE),
    "stalled_ratio": ("stalled for memory", _TIME_SHARE),
    "waited_ms": ("others wait", ms),
    "longer_ms": ("longer by", ms),
    "lead_us": ("launch lead", lambda value: ms(value / 1000)),
    "lead_ms": ("launch lead", ms),
    "speedup_at_most": ("gain at most", lambda value: f"{value:.2f}x"),
}
_SHORT = {
    "gpu": "GPU",
    "nvlink": "NVLink",
    "nvml": "NVML",
    "sm": "SM",
    "cpu": "CPU",
    "gil": "GIL",
    "gc": "GC",
    "pid": "pid",
    "pcie": "PCIe",
}


_LEAST, _MOST = "_at_least", "_at_most"

Figures = Mapping[str, float | int | str | None]


def evidence_rows(evidence: Figures) -> list[tuple[str, str]]:
    """The known figures by ``evidence_text``; both bounds of a share in one row: ``("GPU idle", "72 to 86 %")``."""
    rows = []
    for name, value in evidence.items():
        low_name, high_name = name.replace(_MOST, _LEAST), name.replace(_LEAST, _MOST)
        low, high = evidence.get(low_name), evidence.get(high_name)
        if low_name != high_name and isinstance(low, int | float) and isinstance(high, int | float):
            if name == low_name:
                rows.append((_words(name.replace(_LEAST, "")), between(low, high)))
        elif value is not None:
            rows.append(evidence_text(name, value))
    return rows


def between(low: float, high: float) -> str:
    """``72 to 86 %``; ``up to 79 %`` if the lower bound is near 0; ``unknown`` if the bounds exclude almost nothing."""
    if says_nothing(low, high):
        return "unknown"
    return f"up to {percent(high)}" if low < min(SMALL, high / 2) else percent_range(low, high, " to ")


def evidence_text(name: str, value: float | int | str) -> tuple[str, str]:
    """``("data per step", "41.5 ms")`` of ``data_ms_per_step`` and 41.5."""
    name = plain(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if name == "tf32":
            return "TF32", "on" if value else "off"
        if name == "gpu_idle_at_most" and value < NOTHING:
            return "GPU", "always busy"
        if name in _NAMED:
            words, shown = _NAMED[name]
            return words, shown(value)
        for end, shown, kept in _UNITS:
            if name.endswith(end):
                return _words(name.removesuffix(end) + kept), shown(value)
    if isinstance(value, bool):
        return _words(name), "yes" if value else "no"
    if name == "open_phase":
        value = phase_name(str(value))
    return _words(name), number(value) if isinstance(value, float) else plain(str(value))


def _words(name: str) -> str:
    return " ".join(_SHORT.get(word, word) for word in name.strip("_").split("_"))
