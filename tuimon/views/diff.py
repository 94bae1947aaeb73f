"""Comparison of logs and folders of runs, as plain text without colours, for an e-mail or a wider terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tuimon.diagnosis.cells import Doing, Via
from tuimon.diagnosis.verdicts import fold
from tuimon.errors import UnreadableLog
from tuimon.sources.log.runs import Chosen
from tuimon.sources.log.source import LogSource
from tuimon.text import code_place
from tuimon.views.comparison.compare import compare, factor
from tuimon.views.comparison.result import Comparison, FindingChange, LineChange, Promise, Row, Side
from tuimon.views.comparison.runs import Run, run_of
from tuimon.views.finding_text import rule_title
from tuimon.views.format import (
    ABSENT,
    MAX_WIDTH,
    WIDTH,
    code,
    count,
    duration,
    ms,
    number,
    percent,
    plain,
    shorten,
    size,
    wrap,
)

_BESIDE_CODE = 36  # columns of the figures next to a line of code
#: Increases above this ratio are shown as a factor: +60077 % is harder to read than 602x.
_MANY_TIMES = 9.0
#: Shown for an interval that reaches from less than a tenth to more than ten times as much.
_ANYTHING = "cannot tell"
#: Words for the activity of a line, unless it simply works; in ``_VIA`` below, for the causes of waits.
_DOING: dict[Doing, str] = {
    "collate": "collate",
    "draw": "indices",
    "hand_over": "hand-over",
    "order": "next in order",
    "start": "starting workers",
    "batch": "batches",
    "copy": "copies",
    "sync": "waits for the GPU",
    "gc": "garbage collection",
    "compile": "compiling",
    "import": "imports",
    "rank": "waits for ranks",
    "exchange": "exchange of ranks",
    "others": "other programs",
    "io": "files",
    "network": "network",
    "lock": "waits",
    "sleep": "sleeps",
    "pace": "sleeps",
    "prompt": "prompt",
    "thread": "waits for a thread",
    "message": "messages",
}
_VIA: dict[Via, str] = {
    "batch": "worker",
    "thread": "another thread",
    "process": "another process",
    "rank": "late rank",
    "core": "waits for a core",
    "gil": "waits for the GIL",
    "compile": "by compiling",
}
_KEPT = {"kept": "as promised", "more": "more than promised", "less": "less than promised", "unclear": "cannot tell"}


def compare_logs(before: Sequence[Chosen], after: Sequence[Chosen], *, anyway: bool = False) -> Comparison:
    """Compare the logs that ``choose_all`` found. Raises UnreadableLog if a side has none, NotComparable."""
    left_out = {error.message: None for run in (*before, *after) for error in run.left_out}
    sides: list[list[Run]] = [[], []]
    for side, runs in zip(sides, (before, after), strict=True):
        failure = None
        for run in runs:
            try:
                session, findings = fold(LogSource(run).read_all())
                side.append(run_of(session, findings, run.name))
            except UnreadableLog as error:
                failure = error
                left_out[error.message] = None
        if not side and failure is not None:
            raise failure
    found = compare(*sides, anyway=anyway)
    return replace(found, notes=[*found.notes, *(f"left out: {message}" for message in left_out)])


# -- as text


def text_diff(comparison: Comparison, width: int = WIDTH) -> str:
    width = max(WIDTH, min(width, MAX_WIDTH))
    headline = plain(comparison.headline[:1].upper() + comparison.headline[1:])
    parts = [
        [*wrap(headline, width), *_promise(comparison.promise, width)],
        [*_side("before", comparison.before, width), *_side("after", comparison.after, width)],
        [line for note in comparison.notes for line in wrap(f"- {plain(note)}", width)],
        _titled(
            "Also different",
            (
                line
                for each in comparison.unlike
                for line in wrap(f"  {each.name}: {plain(each.before)} -> {plain(each.after)}", width)
            ),
        ),
        _rows(comparison.rows),
        _titled(
            "Where a step's time goes, in ms; waits are under what they waited for",
            (_line(change, width - _BESIDE_CODE) for change in comparison.lines),
        ),
        _titled("Findings", (line for each in comparison.findings for line in _finding(each, width))),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _promise(promise: Promise | None, width: int) -> list[str]:
    if promise is None:
        return []
    estimated = promise.estimated
    low, high = f"{estimated.low:.1f}", f"{estimated.high:.1f}"
    between = f" ({low}-{high})" if low != high else ""
    text = f"Estimated {estimated.value:.1f}x{between}, measured {factor(promise.measured.value)}x"
    kept = f"{_KEPT[promise.kept]} ({rule_title(promise.rule)}: {plain(promise.action)})"
    return wrap(f"{text}: {kept}", width)


def _side(name: str, side: Side, width: int) -> list[str]:
    first = plain(side.runs[0])
    what = first if len(side.runs) == 1 else f"{len(side.runs)} runs, the first {first}"
    warmup = f", without {duration(side.warmup_s)} of warm-up" if side.warmup_s else ""
    return wrap(f"{name:<8}{what}: {count(side.steps)} steps, {duration(side.seconds)}{warmup}", width, " " * 8)


def _titled(title: str, lines: Iterable[str]) -> list[str]:
    """The title with its lines below; nothing without lines."""
    lines = list(lines)
    return [title, *lines] if lines else []


# -- quantities


def _rows(rows: Iterable[Row]) -> list[str]:
    lines = []
    for row in rows:
        name = f"{row.name}{' (samples)' if row.estimated else ''}"
        change = ABSENT
        if row.difference is not None:  # in percent of the value before, or in its unit if that was 0
            chance = "~" if row.significant is False else ""
            in_unit = f"+{_figure(row, row.difference)}"
            change = chance + (_signed(row.difference / row.before) if row.before else in_unit)
        lines.append(_columns(name, _figure(row, row.before), _figure(row, row.after), change, _interval(row)))
    head = _columns("", "before", "after", "change", "95 % interval")
    return [head, *lines, "~ may be chance: the error of all rows together is 5 %"] if lines else []


def _columns(name: str, before: str, after: str, change: str, interval: str) -> str:
    return f"{name:<17}{before:>11}{after:>11}{change:>12}   {interval}".rstrip()


def _figure(row: Row, value: float | None) -> str:
    shown = size(value) if row.unit.startswith("bytes") else ms(value) if row.unit == "ms" else number(value)
    ends = {"1/s": "/s", "bytes/s": "/s", "%": " %"}
    return shown + (ends.get(row.unit, "") if value is not None else "")


def _interval(row: Row) -> str:
    if row.low is None or row.high is None:
        return ""
    if not row.before:
        return f"{_figure(row, row.low)} to {_figure(row, row.high)}"
    low, high = row.low / row.before, row.high / row.before
    return (
        _ANYTHING
        if low <= -_MANY_TIMES / (1 + _MANY_TIMES) and high >= _MANY_TIMES
        else f"{_signed(low)} to {_signed(high)}"
    )


def _signed(ratio: float) -> str:
    """A change in percent, or as ``660x`` if the value has become many times as large."""
    if ratio > _MANY_TIMES:
        return f"{factor(1 + ratio)}x"
    digits = 1 if abs(ratio) < 0.0995 else 0
    return f"{100 * ratio:+.{digits}f} %"


# -- lines and findings


def _line(change: LineChange, width: int) -> str:
    """``data, worker: photos.py:31 out = cv(img)  24.0 -> 0.40  -23.60 ms``; waits with their cause."""
    kind = [change.phase, *(_VIA[each] for each in change.via), _DOING.get(change.doing, "")]
    where = ", ".join(filter(None, kind))
    if change.file:
        where += f": {code_place(change)} {code(change)}"
    sign = "" if change.significant else "~"
    difference = f"{sign}{change.difference_ms:+.2f} ms"
    where = shorten(where, width)
    return f"  {where:<{width}} {number(change.before_ms):>8} ->{number(change.after_ms):>7} {difference:>14}"


def _finding(each: FindingChange, width: int) -> list[str]:
    share = {"gone": each.share_before, "new": each.share_after}.get(each.change)
    if each.change == "stays" and each.share_before and each.share_after:
        shares = f", {percent(each.share_before)} -> {percent(each.share_after)} of the step"
    else:
        shares = f", {percent(share)} of the step" if share else ""
    cause = f", {each.cause}" if each.cause else ""
    what = f"{each.change + ':':<7}{rule_title(each.rule)} ({each.severity}{plain(cause)}){shares}"
    return wrap(f"  {what}", width, " " * 9)
