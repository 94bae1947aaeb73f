"""Compares two sides: the speedup, its causes, and its uncertainty; refused if the comparison would be meaningless."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple, get_args

from tuimon.diagnosis.cells import Cell
from tuimon.diagnosis.evidence.course import grows
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.errors import NotComparable
from tuimon.interval import NONE, Interval
from tuimon.records import PHASES, STEP_PHASES, Place
from tuimon.text import percent, plural
from tuimon.threshold import SMALL, TINY
from tuimon.views.comparison.result import (
    Became,
    Comparison,
    Effect,
    FindingChange,
    Kept,
    LineChange,
    Outcome,
    Promise,
    Range,
    Row,
    Side,
    Unit,
    Unlike,
)
from tuimon.views.comparison.runs import (
    MIN_BATCHES,
    Estimate,
    Run,
    Runs,
    StepFigure,
    difference,
    estimate,
    mean_step_ms,
    phase_ms,
)
from tuimon.views.format import LISTED
from tuimon.views.report_types import RunFacts
from tuimon.views.run_text import started_program

#: Share of the step below which two runs, or their waits for a core, count as equal: our choice, the smallest
#: difference that a minute of each run can show.
_SAME_WITHIN = 0.03
#: If chance alone may make one run this many times faster than another, the ends of the interval mean nothing.
_UNEVEN = 2
#: Chance of a false difference among all rows together, and among all lines; each gets this over their number.
_ERROR = 0.05


def compare(before: Runs, after: Runs, *, anyway: bool = False) -> Comparison:
    """Compare two sides of at least one run each. Raises NotComparable; with ``anyway`` not if only machines differ."""
    differing = unlike([run.facts for run in before], [run.facts for run in after])
    void = [each for each in differing if each.effect == "void"]
    if void and not anyway:
        what = "; ".join(f"{each.name} {each.before} before, {each.after} after" for each in void)
        raise NotComparable(
            f"the runs differ by more than a change of the code: {what}",
            "Record both on the same machine with the same settings, or compare them nevertheless with --anyway",
        )
    for name, runs in (("BEFORE", before), ("AFTER", after)):
        for run in runs:
            _check(run, name)
    slowed = fmean(run.log_slowdown for run in after) - fmean(run.log_slowdown for run in before)
    longer = Interval(-max(slowed, 0.0), -min(slowed, 0.0))  # by which others may have slowed steps; a logarithm
    rows = _rows(before, after, longer)
    per_sample = any(each.effect == "per sample" for each in differing)
    smaller = (_samples(before[0].facts) or 1) / (_samples(after[0].facts) or 1) if per_sample else 1.0
    step = rows[0]
    assert step.before and step.after and step.low is not None and step.high is not None
    times = (step.after, step.before + step.high, step.before + step.low)
    speedup = Range(*(step.before / time / smaller for time in times))
    outcome = outcome_of(speedup)
    return Comparison(
        headline=_headline(outcome, speedup, rows, before, after, per_sample),
        outcome=outcome,
        speedup=speedup,
        per_sample=per_sample,
        notes=list(_notes(before, after)),
        before=_side(before),
        after=_side(after),
        unlike=differing,
        rows=rows,
        lines=_lines(before, after),
        findings=_finding_changes(before, after),
        promise=None if void else _promise(before, after, speedup),
    )


def _check(run: Run, side: str) -> None:
    if not run.stretches:
        raise NotComparable(
            f"{side} ({run.name}) has no measured step",
            "Steps are measured by markers: record it with tuimon run, or attach --inject",
        )
    number, seconds = len(run.steady), sum(row.span_s for row in run.steady)
    if number < MIN_BATCHES:
        raise NotComparable(
            f"{side} ({run.name}) is too short: only {plural(number, 'window')} with steps after its"
            f" warm-up, in {seconds:.0f} s",
            f"At least {MIN_BATCHES} windows are needed: record with --interval 1, or for longer",
        )


def _side(runs: Runs) -> Side:
    rows = [row for run in runs for row in run.steady]
    return Side(
        [run.name for run in runs],
        runs[0].facts,
        round(sum(row.steps for row in rows)),
        round(sum(row.span_s for row in rows), 3),
        round(sum(row.span_s for run in runs for row in run.warmup), 3),
    )


def outcome_of(speedup: Range) -> Outcome:
    """The outcome that an interval shows."""
    if speedup.low > 1.0:
        return "faster"
    if speedup.high < 1.0:
        return "slower"
    is_narrow = speedup.low >= 1 / (1 + _SAME_WITHIN) and speedup.high <= 1 + _SAME_WITHIN
    return "same" if is_narrow else "unclear"


# -- the likeness of both sides

#: Facts by name, with the consequence of a difference.
_FACTS: tuple[tuple[str, Callable[[RunFacts], object], Effect], ...] = (
    ("program", lambda facts: started_program(facts.command) or None, "void"),
    ("GPUs", lambda facts: facts.gpu_names, "void"),
    ("cores", lambda facts: facts.cpu_count, "void"),
    ("nodes", lambda facts: facts.nodes, "void"),
    ("ranks", lambda facts: facts.ranks, "per sample"),
    ("batch size", lambda facts: facts.batch_size, "per sample"),
    ("host", lambda facts: facts.host, "said"),
    ("driver", lambda facts: facts.driver, "said"),
    ("CUDA", lambda facts: facts.cuda, "said"),
    ("torch", lambda facts: facts.torch, "said"),
    ("Python", lambda facts: facts.python, "said"),
    ("tuimon", lambda facts: facts.tuimon, "said"),
    ("parameters", lambda facts: ", ".join(facts.dtypes) or None, "said"),
    ("TF32", lambda facts: facts.tf32, "said"),
    ("DataLoader workers", lambda facts: facts.workers, "said"),
    ("checkpoints to", lambda facts: facts.checkpoints_to, "said"),
    ("command", lambda facts: " ".join(facts.command), "said"),
)


def unlike(before: Sequence[RunFacts], after: Sequence[RunFacts]) -> list[Unlike]:
    """The facts that differ between runs of the two sides; a fact that is unknown for a run counts as equal.

    Runs of one side that differ in batch size share no step; an unknown size cannot be divided out.
    """
    found = []
    for name, of, effect in _FACTS:
        one, other = (sorted({str(of(facts)) for facts in side if of(facts) is not None}) for side in (before, after))
        if not one or not other or (one == other and len(one) == 1):
            continue
        is_sized = len(one) == len(other) == 1 and all(_samples(facts) for facts in (*before, *after))
        void = effect == "per sample" and not is_sized
        found.append(Unlike(name, " / ".join(one), " / ".join(other), "void" if void else effect))
    return found


def _samples(facts: RunFacts) -> int | None:
    """Samples of a step over all ranks, which have their own batches; None if the batch size is unknown."""
    return facts.batch_size * facts.ranks if facts.batch_size is not None else None


# -- each quantity on both sides


class _Quantity(NamedTuple):
    """The estimate of a row on one side."""

    name: str
    unit: Unit
    figure: StepFigure
    widened: Interval | None = None  # by what others may have cost; its estimates are logarithms in that case

    def on(self, runs: Runs) -> Estimate:
        """Its mean over the runs of a side."""
        unsure_ms = runs[0].phase_errors.get(self.name, 0.0) / 1.96 * mean_step_ms(runs[0].level)
        return estimate(runs, self.figure, unsure_ms**2, is_log=self.widened is not None)


#: Figures that a run has once: name, unit, figure.
_ONCE: tuple[tuple[str, Unit, Callable[[Run], float | None]], ...] = (
    ("GPU utilisation", "%", lambda run: None if run.gpu_ratio is None else 100 * run.gpu_ratio),
    ("host memory", "bytes", lambda run: run.host_bytes or None),
    ("GPU memory", "bytes", lambda run: run.gpu_bytes or None),
    ("checkpoints", "1", lambda run: getattr(run.checkpoints, "number", None)),
    ("checkpoint", "ms", lambda run: getattr(run.checkpoints, "each_ms", None)),
    ("checkpoint size", "bytes", lambda run: getattr(run.checkpoints, "each_bytes", None)),
    ("checkpoint rate", "bytes/s", lambda run: getattr(run.checkpoints, "bytes_per_s", None)),
)


def _rows(before: Runs, after: Runs, longer: Interval) -> list[Row]:
    """Step time, throughput, phases, CPU, waits; then figures that a run has once. ``longer`` widens the first two."""
    quantities = [
        _Quantity("step time", "ms", lambda _, row: mean_step_ms(row), longer),
        _Quantity(
            "throughput", "1/s", lambda _, row: row.steps / max(row.span_s, 1e-9), Interval(-longer.high, -longer.low)
        ),
        *(_Quantity(name, "ms", partial(phase_ms, name)) for name in PHASES),
        _Quantity("CPU time", "ms", lambda _, row: row.cpu_ns / row.steps / 1e6),
        _Quantity("waits for a core", "ms", lambda _, row: row.waited_ns / row.steps / 1e6),
    ]
    least_ms = 0.0005 * fmean(mean_step_ms(run.level) for run in (*before, *after))  # smaller phases are left out
    sides = [(quantity, quantity.on(before), quantity.on(after)) for quantity in quantities]
    shown = [
        (q, one, other) for q, one, other in sides if q.widened is not None or max(one.value, other.value) > least_ms
    ]
    estimated = {name for run in (*before, *after) for name in run.phase_errors}
    rows = [_row(*each, len(shown), each[0].name in estimated) for each in shown]
    for name, unit, of in _ONCE:
        ends = [[value for run in runs if (value := of(run)) is not None] for runs in (before, after)]
        if all(ends):
            one, other = map(fmean, ends)
            rows.append(Row(name, unit, one, other, other - one))
    return rows


def _row(quantity: _Quantity, one: Estimate, other: Estimate, number: int, estimated: bool) -> Row:
    interval, strict = (
        Interval.sum_of((difference(one, other, 1 - error), quantity.widened or NONE))
        for error in (_ERROR, _ERROR / number)
    )
    before, after = one.value, other.value
    if quantity.widened is not None:
        before, after = math.exp(one.value), math.exp(other.value)
        interval = Interval(before * math.expm1(interval.low), before * math.expm1(interval.high))
    elif before >= 0:
        interval = Interval(max(interval.low, -before), interval.high)  # nothing takes less than no time
    significant = not strict.contains(0.0)
    return Row(quantity.name, quantity.unit, before, after, after - before, *interval, significant, estimated)


# -- the causes

#: Kinds of work counted as one when looking for what has become longer: few samples may decide between them.
_WORK = frozenset(("own", "torch", "launch", "item"))
#: The identity of a cell in any run, even if its lines have moved: its kind, and a function in a file.
_Key = tuple[object, ...]


class _Cells:
    """The cells of one side, in ms of a step."""

    def __init__(self, runs: Runs) -> None:
        """Each cell is the mean over several runs."""
        self.at: dict[_Key, tuple[Cell, Place]] = {}
        self._found: dict[_Key, Estimate] = {}
        self._step_ms = fmean(mean_step_ms(run.level) for run in runs)
        self._unseen = Estimate(0.0, (self._step_ms / max(1, sum(run.samples for run in runs))) ** 2)
        for run in runs:
            each_ms = mean_step_ms(run.level) / len(runs)
            for cell, place in run.cells:
                doing = "" if cell.doing in _WORK else cell.doing
                key = (cell.phase, doing, cell.via, os.path.basename(place.file), place.function)
                self.at[key] = cell, place
                value, variance, _ = self._found.get(key, Estimate(0.0))
                variance += (max(cell.interval.error / 1.96, 1 / max(1, run.samples)) * each_ms) ** 2
                self._found[key] = Estimate(value + cell.share * each_ms, variance)

    def ms(self, key: _Key) -> Estimate:
        """The time of one cell; if no sample shows it, it is as certain as with one sample."""
        return self._found.get(key, self._unseen)

    def is_weighty(self, key: _Key) -> bool:
        """True if it is large enough to be compared."""
        return self.ms(key).value >= TINY * self._step_ms


def _lines(before: Runs, after: Runs) -> list[LineChange]:
    """The cells of the step that changed most."""
    one, other = _Cells(before), _Cells(after)
    cells = {key: at for key, at in {**one.at, **other.at}.items() if one.is_weighty(key) or other.is_weighty(key)}
    found = []
    for key, (cell, place) in cells.items() if one.at and other.at else ():
        was, now = one.ms(key), other.ms(key)
        interval, strict = (difference(was, now, 1 - error) for error in (_ERROR, _ERROR / len(cells)))
        found.append(
            LineChange(
                file=place.file,
                line=place.line,
                function=place.function,
                source=place.source,
                before_ms=was.value,
                after_ms=now.value,
                difference_ms=now.value - was.value,
                low_ms=interval.low,
                high_ms=interval.high,
                significant=not strict.contains(0.0),
                phase=cell.phase,
                doing=cell.doing,
                via=list(cell.via),
            )
        )
    return sorted(found, key=lambda change: -abs(change.difference_ms))[:LISTED]


# -- findings, and whether the fix of one brought the gain that was estimated


def _findings(runs: Runs) -> dict[tuple[str, str | None], Finding]:
    """The findings of at least half of the runs, as the first run has them; another cause is another finding."""
    every: dict[tuple[str, str | None], list[Finding]] = {}
    for run in runs:
        for finding in run.findings:
            every.setdefault((finding.rule, finding.cause), []).append(finding)
    return {key: found[0] for key, found in every.items() if 2 * len(found) >= len(runs)}


def _finding_changes(before: Runs, after: Runs) -> list[FindingChange]:
    """The findings that are gone, then the new ones, then those that stay."""
    one, other = _findings(before), _findings(after)
    found = []
    for key in (*one, *(key for key in other if key not in one)):
        was, now = one.get(key), other.get(key)
        shown = now or was
        assert shown is not None
        became: Became = "gone" if now is None else "new" if was is None else "stays"
        shares = (each.share_of_step if each is not None else None for each in (was, now))
        found.append(FindingChange(became, shown.rule, shown.cause, shown.severity, shown.headline, *shares))
    return sorted(found, key=lambda change: get_args(Became).index(change.change))


def _promise(before: Runs, after: Runs, speedup: Range) -> Promise | None:
    """The gain estimated for the fix of the most severe finding that is gone; None if it had no estimate."""
    other = _findings(after)
    for finding in (each for key, each in _findings(before).items() if key not in other):
        fix = _done(finding, before[0].facts, after[0].facts)
        if fix is None or fix.estimated_speedup is None or fix.gain is None:
            continue
        estimated = Range(fix.estimated_speedup, *fix.gain)
        # The estimate is for steps with their part of the evaluation: both sides get the same part, unless the fix was
        # to shorten it, as the amount of evaluation in a run depends on where the run ends.
        beside = _evaluation(before)
        beside_after = _evaluation(after) if finding.cause == "evaluation" else beside
        gains = (speedup.value, speedup.low, speedup.high)
        measured = Range(*((1 + beside) / (1 / gain + beside_after) for gain in gains))
        if measured.low > estimated.high or measured.high < estimated.low:
            kept: Kept = "more" if measured.low > estimated.high else "less"
        else:
            kept = "unclear" if measured.low <= 1.0 <= measured.high else "kept"
        return Promise(finding.rule, fix.action, estimated, measured, kept)
    return None


def _done(finding: Finding, before: RunFacts, after: RunFacts) -> Fix | None:
    """The fix that was made: the number of workers may show which; else the best one.

    None if only the arguments of one program may have changed, and not its code.
    """
    has_changed = before.workers != after.workers
    made = [fix for fix in finding.fixes if (fix.change is not None and fix.change.edit == "workers") == has_changed]
    if before.command == after.command:
        return next(iter(made or finding.fixes), None)
    return made[0] if made and has_changed else None


# -- the headline, and causes of uncertainty


def _headline(
    outcome: Outcome, speedup: Range, rows: Sequence[Row], before: Runs, after: Runs, per_sample: bool
) -> str:
    """``1.84x faster (1.79-1.88): data 62 % -> 3 %; now compute-bound in backward``."""
    what = f"{speedup_text(outcome, speedup)}{' per sample' if per_sample else ''}"
    one, other = (part / (1 + part) for part in map(_evaluation, (before, after)))
    beside = f"evaluation {percent(one)} -> {percent(other)} of the time" if abs(other - one) >= SMALL else ""
    if outcome in ("same", "unclear"):
        return f"{what}; {beside}" if beside else what
    changed: list[str] = [row.name for row in rows if row.significant and row.name in STEP_PHASES]
    shares = {name: (_share(name, before), _share(name, after)) for name in changed}
    most = max(shares, key=lambda name: abs(shares[name][1] - shares[name][0]), default="")
    was, now = shares.get(most, (0.0, 0.0))
    phase = f"{most} {percent(was)} -> {percent(now)}" if abs(now - was) >= SMALL else ""
    parts = [text for text in (phase, beside, _state(before, after)) if text]
    return f"{what}: {'; '.join(parts)}" if parts else what


def speedup_text(outcome: Outcome, speedup: Range) -> str:
    """The speedup with its interval; for a slower run, how many times as long a step takes."""
    value, low, high = speedup.value, speedup.low, speedup.high
    if outcome == "slower":
        value, low, high = 1 / value, 1 / high, 1 / low
    digits = 3 if max(abs(each - 1) for each in (value, low, high)) < 0.0995 else 2  # 1.0995x would be 1.10x
    middle, least, most = (factor(each, digits) for each in (value, low, high))
    match outcome:
        case "faster" | "slower":
            return f"{middle}x {outcome} ({least}-{most})"
        case "same":
            return f"no difference: {middle}x ({least}-{most})"
        case "unclear" if high > _UNEVEN**2 * low:
            return f"cannot tell: runs this uneven differ by a factor of {_UNEVEN} or more by chance; repeat the runs"
        case "unclear":
            return f"cannot tell: between {factor(1 / low, digits)}x slower and {most}x faster; repeat the runs"


def factor(value: float, digits: int = 2) -> str:
    """``1.84``; with one digit less if far from 1."""
    return f"{value:.{digits}f}" if value < 9.995 else f"{value:.3g}"


def _share(name: str, runs: Runs) -> float:
    return fmean(phase_ms(name, run, run.level) / mean_step_ms(run.level) for run in runs)


def _evaluation(runs: Runs) -> float:
    """The time of evaluation, which is outside the steps, as a ratio to their time."""
    return sum(run.level.eval_ns for run in runs) / max(1.0, sum(run.level.total_ns for run in runs))


def _state(before: Runs, after: Runs) -> str:
    """The finding that limits the later side: its first one."""
    finding, earlier = (next(iter(runs[0].findings), None) for runs in (after, before))
    if finding is None:
        return ""
    word = "still" if earlier is not None and (earlier.rule, earlier.cause) == (finding.rule, finding.cause) else "now"
    if finding.rule in ("compute_bound", "compute_bound_cpu"):
        return f"{word} compute-bound in {max(STEP_PHASES, key=lambda name: _share(name, after))}"
    return f"{word} {finding.rule.replace('_', '-')}"


def _notes(before: Runs, after: Runs) -> Iterator[str]:
    """Causes of uncertainty in the comparison, the most important first."""
    sides = [("BEFORE", run) for run in before] + [("AFTER", run) for run in after]
    for name, run in sides:
        shared = next((each for each in run.findings if each.rule == "neighbour" and each.severity != "benign"), None)
        if run.starved >= _SAME_WITHIN:
            yield (
                f"Other programs ran during {name}: a thread waited for a core {percent(run.starved)} of the time; the"
                " interval allows for what that may have cost. Repeat the run on an idle machine"
            )
        elif shared is not None:
            allowed = "; the interval allows for what that may have cost" if run.gpu_taken else ""
            yield f"{name} was not alone: {shared.headline}{allowed}"
    for name, run in sides:
        steps_ms = [mean_step_ms(row) for row in run.steady]
        if grows(steps_ms) or grows([-ms for ms in steps_ms]):
            yield (
                f"Steps of {name} grow longer or shorter throughout the run, which widens the interval: record several"
                " runs of each side, all with the same number of steps"
            )
    single = [runs[0] for runs in (before, after) if len(runs) == 1]
    if single:
        assumed = 100 * math.sqrt(max(run.assumed_variance + run.lasting_variance for run in single))
        which = "per side" if len(single) == 2 else "on one side"
        yield f"With one run {which}, {assumed:.1f} % run-to-run noise is assumed; record several runs to measure it"
