"""What stands around each view of the samples: which view, whose samples, of which phase."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from tuimon.records import PHASES
from tuimon.session.asked import Scope
from tuimon.session.profile import Profile
from tuimon.views.format import count, percent, plain
from tuimon.views.tui.lines import Line, Span, cells, clip, justified, line

Mode = Literal["lines", "tree", "icicle"]
MODES: tuple[tuple[str, Mode, str], ...] = (
    ("h", "lines", "Hot lines"),
    ("c", "tree", "Call tree"),
    ("i", "icicle", "Icicle"),
)
#: The phases that the samples of a training thread divide into.
FILTERS: tuple[str | None, ...] = (None, *(name for name in PHASES if name != "eval"))


def tabs_line(mode: Mode, who: str, samples: int, width: int) -> Line:
    """The three views, the one shown marked; at the right whose samples they are of, and how many."""
    spans: list[Span] = []
    for key, name, title in MODES:
        if name == mode:
            spans += [Span(f" {key} {title} ", "key badge"), Span(" ")]
        else:
            spans += [Span(f" {key}", "key bold"), Span(f" {title} ", "dim"), Span(" ")]
    many = line((f"  {count(samples)} samples", "dim")) if width >= 90 else ()
    right = (Span("t ", "key bold"), Span(plain(who), "strong"), *many)
    return justified(spans, clip(right, max(width - cells(spans) - 1, 10)), width)


def phases_line(counts: Counter[str], phase: str | None, width: int) -> Line:
    """The phases with their shares of these samples; the one that is shown alone is marked."""
    total = counts.total()
    tight = width < 90
    spans: list[Span] = [Span(" f", "key bold"), Span(" " if tight else "  ")]
    for name in FILTERS:
        share = f" {percent(counts[name] / total)}" if name and total else ""
        if tight:
            share = share.replace(" %", "%")
        if name == phase:
            spans += [Span(f" {name or 'all'}{share} ", f"{name or 'key'} badge"), Span("" if tight else " ")]
        else:
            spans += [Span(f" {name or 'all'}", name or "text"), Span(f"{share} ", "dim"), Span("" if tight else " ")]
    return clip(spans, width)


def who_text(scope: Scope, alike: int) -> str:
    """Whose samples: ``main (pid 4242)``, ``all 4 workers``, ``process 4242``, ``the whole run``."""
    match scope.extent:
        case "thread":
            where = f"pid {scope.pid}" if scope.tid == scope.pid else f"tid {scope.tid}"
            return f"{scope.role} · {where}"
        case "role":
            return f"all {alike} {scope.kind} threads"
        case "process":
            return f"process {scope.pid}"
        case "run":
            return "the whole run"


def empty_lines(profile: Profile, phase: str | None) -> list[Line]:
    """Why there is nothing to show, and what to press."""
    if profile.samples and phase is not None and not profile.has_phases:
        why = "phases are of a training process: these threads have none"
        return [(), line((why, "text")), line("press ", ("f", "key bold"), " for all samples")]
    if profile.samples and phase is not None:
        return [(), line((f"no sample in {phase} in the last 30 s", "text"))]
    return [
        (),
        line(("no stack samples of the last 30 s", "text")),
        line(("a thread without Python, one that sleeps all the time, or one not sampled yet", "dim")),
        line("press ", ("t", "key bold"), " to look at the whole process"),
    ]
