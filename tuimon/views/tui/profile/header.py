"""The lines around each view of the samples: which view, whose samples, which phase."""

from __future__ import annotations

from itertools import chain
from typing import Literal

from tuimon.node_ids import own_id
from tuimon.records import PHASES
from tuimon.session.stacks.samples import RANGE, Samples
from tuimon.views.format import count, percent, plain
from tuimon.views.tui.drawing.lines import Line, Span, cells, clip, justified, line
from tuimon.views.tui.profile.scope import Scope

Mode = Literal["lines", "tree"]
MODES: tuple[tuple[str, Mode, str], ...] = (
    ("h", "lines", "Hot lines"),
    ("c", "tree", "Call tree"),
)
#: The phases that the samples of a training thread always divide into; evaluation where there is any.
FILTERS: tuple[str | None, ...] = (None, *(name for name in PHASES if name != "eval"))


def filters(samples: Samples) -> tuple[str | None, ...]:
    """The filters that ``f`` cycles through: all, the phases, the user's ranges."""
    evaluation = ("eval",) if samples.phases["eval"] else ()
    return (*FILTERS, *evaluation, *(RANGE + path for path in sorted(samples.ranges)))


def tabs_line(mode: Mode, who: str, samples: int, width: int) -> Line:
    """The two views, the one shown marked; at the right whose samples they are of, and how many."""
    spans: list[Span] = []
    for key, name, title in MODES:
        if name == mode:
            spans += [Span(f" {key} {title} ", "key badge"), Span(" ")]
        else:
            spans += [Span(f" {key}", "key bold"), Span(f" {title} ", "dim"), Span(" ")]
    many = line((f"  {count(samples)} samples", "dim")) if width >= 90 else ()
    right = (Span("t ", "key bold"), Span(plain(who), "strong"), *many)
    return justified(spans, clip(right, max(width - cells(spans) - 1, 10)), width)


def phases_line(samples: Samples, part: str | None, width: int) -> Line:
    """The phases with their shares of these samples; the one that is shown alone is marked."""
    tight = width < 90
    spans: list[Span] = [Span(" f", "key bold"), Span(" " if tight else "  ")]
    for name in filters(samples):
        if name is None or not name.startswith(RANGE):
            spans += _choice(name or "all", name or "text", samples, name, part, tight)
    return clip(spans, width)


def ranges_line(samples: Samples, part: str | None, width: int) -> Line:
    """The user's ranges with their shares; where room is short, those before the one shown alone are left out."""
    tight = width < 90
    listed = [name for name in filters(samples) if name is not None and name.startswith(RANGE)]
    choices = [_choice(plain(name.removeprefix(RANGE)), "text", samples, name, part, tight) for name in listed]
    label = Span(" ranges ", "dim")
    at = listed.index(part) if part in listed else 0
    first = 0
    while first < at and cells([label, Span("… "), *chain(*choices[first : at + 1])]) > width:
        first += 1
    return clip([label, *([Span("… ", "dim")] if first else []), *chain(*choices[first:])], width)


def _choice(text: str, role: str, samples: Samples, name: str | None, part: str | None, tight: bool) -> list[Span]:
    share = f" {percent(samples.count(name) / samples.total)}" if name and samples.total else ""
    if tight:
        share = share.replace(" %", "%")
    after = Span("" if tight else " ")
    if name == part:
        marked = "key" if role == "text" else role
        return [Span(f" {text}{share} ", f"{marked} badge"), after]
    return [Span(f" {text}", role), Span(f"{share} ", "dim"), after]


def who_text(scope: Scope, alike: int) -> str:
    """Whose samples: ``main (pid 4242)``, ``all 4 workers``, ``process 4242``, ``the whole run``."""
    match scope.level:
        case "thread":
            where = f"pid {own_id(scope.pid)}" if scope.tid == scope.pid else f"tid {own_id(scope.tid)}"
            return f"{scope.role} · {where}"
        case "role":
            return f"all {alike} {scope.kind} threads"
        case "process":
            return f"process {own_id(scope.pid)}"
        case "run":
            return "the whole run"


def part_text(part: str) -> str:
    """A phase or a user range, for people."""
    return f"the range {plain(part.removeprefix(RANGE))}" if part.startswith(RANGE) else part


def empty_lines(samples: Samples, phase: str | None) -> list[Line]:
    """Why there is nothing to show, and what to press."""
    if samples.total and phase is not None and not any(name != "none" for name in samples.phases):
        why = "only the training threads have phases: these threads have none"
        return [(), line((why, "text")), line("press ", ("f", "key bold"), " for all samples")]
    if samples.total and phase is not None:
        return [(), line((f"no sample in {part_text(phase)} in the last 30 s", "text"))]
    return [
        (),
        line(("no stack samples of the last 30 s", "text")),
        line(("a thread without Python, one that sleeps all the time, or one not sampled yet", "dim")),
        line("press ", ("t", "key bold"), " to see the whole process"),
    ]
