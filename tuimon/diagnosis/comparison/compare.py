"""Two sides compared: refused where that means nothing, else the speedup, every row, and what disturbs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuimon.diagnosis.comparison.figures import RunFacts, RunFigures
from tuimon.diagnosis.comparison.findings import finding_changes, promise_of
from tuimon.diagnosis.comparison.lines import line_changes
from tuimon.diagnosis.comparison.result import Comparison, Effect, Side, Unlike
from tuimon.diagnosis.comparison.rows import rows_of
from tuimon.diagnosis.comparison.side import LEAST_BATCHES, JudgedRun, Runs, judged
from tuimon.diagnosis.comparison.speed import outcome_of, speedup_of
from tuimon.diagnosis.comparison.words import headline_of, notes_of
from tuimon.errors import NotComparable


def compare(before: Sequence[RunFigures], after: Sequence[RunFigures], *, anyway: bool = False) -> Comparison:
    """Compare two sides of one run or more each. Raises NotComparable; ``anyway``: not where only machines differ."""
    differing = unlike([run.facts for run in before], [run.facts for run in after])
    _refuse(differing, anyway=anyway)
    per_sample = any(each.effect == "per sample" for each in differing)
    one, other = sides = _aligned(_judged(before, "BEFORE"), _judged(after, "AFTER"))
    speedup, rows = speedup_of(one, other, _samples(one) / _samples(other) if per_sample else 1.0), rows_of(one, other)
    outcome = outcome_of(speedup)
    certain = {row.name for row in rows if row.significant}
    return Comparison(
        headline=headline_of(outcome, speedup, certain, *sides, per_sample),
        outcome=outcome,
        speedup=speedup,
        per_sample=per_sample,
        notes=notes_of(*sides),
        before=_side(one),
        after=_side(other),
        unlike=differing,
        rows=rows,
        lines=line_changes(*sides),
        findings=finding_changes(*sides),
        promise=None if _void(differing) else promise_of(*sides, speedup),
    )


def _samples(runs: Runs) -> float:
    return float(samples_a_step(runs[0].figures.facts) or 1)


def _refuse(differing: Sequence[Unlike], *, anyway: bool) -> None:
    void = _void(differing)
    if not void or anyway:
        return
    what = "; ".join(f"{each.name} {each.before} before, {each.after} after" for each in void)
    raise NotComparable(
        f"the runs differ by more than a change of the code: {what}",
        "Record both on the same machine with the same settings, or compare them nevertheless with --anyway",
    )


def _void(differing: Sequence[Unlike]) -> list[Unlike]:
    return [each for each in differing if each.effect == "void"]


def _judged(runs: Sequence[RunFigures], side: str) -> list[JudgedRun]:
    found = [judged(run) for run in runs]
    for run in found:
        _check(run, side)
    return found


def _check(run: JudgedRun, side: str) -> None:
    name, steady = run.figures.name, run.steady
    windows = f"{len(steady.rows)} window{'' if len(steady.rows) == 1 else 's'}"
    if not run.figures.stretches:
        raise NotComparable(
            f"{side} ({name}) has no step that was measured",
            "Steps are measured by markers: record it by tuimon run, or attach --inject",
        )
    if not run.is_long_enough:
        raise NotComparable(
            f"{side} ({name}) is too short: only {windows} with steps after its warm-up, in {steady.seconds:.0f} s",
            f"At least {LEAST_BATCHES} windows are needed: record with --interval 1, or for longer",
        )


def _aligned(before: list[JudgedRun], after: list[JudgedRun]) -> tuple[Runs, Runs]:
    """Both sides, cut to steps of the same numbers if the steps of a run grow or shrink all the time."""
    runs = [*before, *after]
    if not any(run.trend for run in runs):
        return before, after
    first = max(run.steady.rows[0].first_step for run in runs)
    last = min(run.steady.rows[-1].first_step + run.steady.rows[-1].steps for run in runs)
    cut = [[run.within_steps(first, last) for run in side] for side in (before, after)]
    if not all(run.is_long_enough for side in cut for run in side):
        raise NotComparable(
            "the steps of one side grow or shrink all the time, and too few steps of both have the same numbers",
            "Record both from the beginning, for as many steps",
        )
    return cut[0], cut[1]


def _side(runs: Runs) -> Side:
    return Side(
        [run.figures.name for run in runs],
        runs[0].figures.facts,
        sum(run.steady.steps for run in runs),
        round(sum(run.steady.seconds for run in runs), 3),
        round(sum(run.warmup_s for run in runs), 3),
    )


# -- how alike both sides are

#: Facts by name, with what a difference means.
_FACTS: tuple[tuple[str, Callable[[RunFacts], object], Effect], ...] = (
    ("GPUs", lambda facts: _counted(facts.gpus), "void"),
    ("cores", lambda facts: facts.cpu_count, "void"),
    ("nodes", lambda facts: facts.nodes, "void"),
    ("ranks", lambda facts: facts.ranks, "per sample"),
    ("batch size", lambda facts: facts.batch_size, "per sample"),
    ("host", lambda facts: facts.host, "said"),
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
    """The facts that are not the same in all runs of both sides; what is unknown of a run differs from nothing."""
    found = []
    for name, of, effect in _FACTS:
        values = [[value for facts in side if (value := of(facts)) is not None] for side in (before, after)]
        texts = [sorted({str(value) for value in side}) for side in values]
        if not all(texts) or (texts[0] == texts[1] and len(texts[0]) == 1):
            continue
        mixed = max(map(len, texts)) > 1
        sized = effect == "per sample" and not mixed and _sizes_known(before, after)
        found.append(Unlike(name, " / ".join(texts[0]), " / ".join(texts[1]), _effect(effect, mixed, sized)))
    return found


def _effect(effect: Effect, mixed: bool, sized: bool) -> Effect:
    """Runs of one side that differ in size have no step in common; a size that is unknown cannot be taken out."""
    if effect == "per sample" and not sized:
        return "void"
    return effect


def samples_a_step(facts: RunFacts) -> int | None:
    """Samples of a step over all ranks, each with its own batches; None where the batch size is unknown."""
    return facts.batch_size * facts.ranks if facts.batch_size is not None else None


def _sizes_known(*sides: Sequence[RunFacts]) -> bool:
    return all(samples_a_step(facts) is not None for side in sides for facts in side)


def _counted(names: Sequence[str]) -> str | None:
    """``2 × H100``: names with how many of each; None without any."""
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{number} × {name}" if number > 1 else name for name, number in counts.items()) or None
