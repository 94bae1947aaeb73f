"""The rules at work: a Session's findings, most important first, and which rules lacked evidence.

Time is claimed once: a finding whose time mostly belongs to other findings is dropped, and hands over its advice.

``of_unclaimed`` of a rule judges the time that no finding claims (``rules/model.py``).

Worked example: the training thread waits at ``loss.item()`` and then makes a batch, for a quarter of each step. The
GPU has nothing to do then, because its queue has run dry during the wait. Both ``sync_point`` and ``input_bound``
claim that quarter of the GPU's time. The first claim is a little longer: it keeps the time and takes over the fixes of
the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.cells import Cell, Cells, cells_of, scaled
from tuimon.diagnosis.evidence.evidence import Evidence, evidence_of
from tuimon.diagnosis.evidence.process import FIRST_STEPS
from tuimon.diagnosis.finding import Finding, Unjudged, graded, within_share
from tuimon.diagnosis.needs import NEEDS
from tuimon.diagnosis.rule import Rule, Unclaimed
from tuimon.diagnosis.rulebook import BY_NAME, RULES, ranked
from tuimon.diagnosis.rules.advice import with_warnings
from tuimon.records import STEP_PHASES
from tuimon.session.session import Session
from tuimon.threshold import MOST


def diagnose(session: Session, *, is_still: bool = False) -> list[Finding]:
    """The findings on the process in focus, most important first; almost none before the first step and in warm-up.

    ``is_still``: the loop stands still, and only rules about a moment judge it.
    """
    evidence = evidence_of(session.over("recent").focus)
    if not evidence.pid:
        return []
    if is_still or not evidence.has_stepped:
        rules = [rule for rule in RULES if (rule.of_moment if is_still else rule.needs_no_step)]
        return _ranked(_found(evidence, rules), evidence)
    if beginning := _found(evidence, [BY_NAME["warmup"]]):
        return beginning
    return _ranked(_found(evidence, [rule for rule in RULES if rule.name != "warmup"]), evidence, with_unclaimed=True)


def diagnose_run(session: Session, of_moment: Sequence[Finding]) -> list[Finding]:
    """The findings on the run's whole steady part; ``of_moment``: the findings of rules about a moment."""
    evidence = evidence_of(session.over("whole").focus)
    if not evidence.pid:
        return []
    if session.exit is not None:
        hangs = any(each.rule == "hang" for each in of_moment)  # the stacks say more than the end of the run
        ending = _found(
            evidence, [rule for rule in RULES if rule.needs_no_step and not (hangs and rule.name == "hang")]
        )
        ended = {finding.rule for finding in ending}
        of_moment = [*ending, *(each for each in of_moment if each.rule not in ended)]
    if not evidence.has_stepped or (evidence.is_marked and evidence.totals.steps < FIRST_STEPS):
        return _ranked(of_moment, evidence)
    rules = [rule for rule in RULES if not rule.of_moment and rule.name != "warmup"]
    return _ranked([*_found(evidence, rules), *of_moment], evidence, with_unclaimed=True)


def _ranked(findings: Iterable[Finding], evidence: Evidence, *, with_unclaimed: bool = False) -> list[Finding]:
    left = drop_explained(findings, evidence, with_unclaimed=with_unclaimed)
    left = [_with_severity(within_share(finding)) for finding in left]  # fixes may have been taken over
    return with_warnings(ranked(left), evidence)


def _found(evidence: Evidence, rules: Sequence[Rule]) -> list[Finding]:
    judged = ((rule, rule.judge(evidence)) for rule in rules)
    found = (replace(finding, rule=rule.name) for rule, finding in judged if finding is not None)
    return [_with_severity(within_share(finding)) for finding in found]


def _with_severity(finding: Finding) -> Finding:
    return finding if BY_NAME[finding.rule].kind == "harm" else graded(finding)


def unjudged(session: Session) -> list[Unjudged]:
    """The rules that could not judge the process in focus, each with the reason."""
    evidence = evidence_of(session.over("recent").focus)
    if not evidence.pid:
        return [Unjudged("all", "no training process was seen")]
    reasons = ((need, need.missing(evidence)) for need in NEEDS)
    return [
        Unjudged(name, reason)
        for need, reason in reasons
        if reason is not None
        for name in ([need.reported_as] if need.reported_as else [r.name for r in RULES if need in r.needs])
    ]


# -- the division of time among findings


class ClaimableTime(NamedTuple):
    """The time of a step that findings can claim."""

    cells: Sequence[Cell]
    sizes: Sequence[float]  # each cell's share of the step; with GPU times, the most that the GPU may idle during it
    total: float  # of all cells together: the upper bounds of the GPU's idle time in each phase may add up to more


class Claimed(NamedTuple):
    """The findings, by rule, that keep most of the time that they claim; and the cells of a step without that time."""

    kept: dict[str, Finding]
    left: Cells


def drop_explained(findings: Iterable[Finding], evidence: Evidence, *, with_unclaimed: bool = False) -> list[Finding]:
    """Drops findings whose time another finding explains.

    During a hang only GPU errors are kept, because shares of steps describe the past.

    Of the findings about a loop without faults only the first is kept: a larger batch is a guess unless it is known why
    a GPU idles. A harmless wait is dropped if one at the same line costs time.

    ``with_unclaimed``: add findings about unclaimed time, if nothing holds the loop up or that time is most of a step.
    """
    found = {finding.rule: finding for finding in findings}
    if "hang" in found and "share_of_run" not in found["hang"].evidence:
        return [each for name, each in found.items() if name in ("hang", "gpu_health")]
    faults = tuple(each for each in found.values() if BY_NAME[each.rule].is_fault)
    holds_up = "hang" in found or any(map(_is_warning_or_worse, faults))
    for name in _without_faults(found) if holds_up else ():
        del found[name]
    left = settle_claims(_costly(found), _claimable_time(evidence)).left if with_unclaimed else Cells()
    if with_unclaimed and (not holds_up or left.share >= MOST):
        unclaimed = Unclaimed(evidence, left, faults, holds_up)
        described = (
            (name, rule.of_unclaimed(unclaimed))
            for name, rule in BY_NAME.items()
            if rule.of_unclaimed and name not in found
        )
        found |= {name: replace(each, rule=name) for name, each in described if each is not None}
    for name in _without_faults(found)[1:]:
        del found[name]
    costly = _costly(found)
    for each in list(found.values()):
        is_benign_claim = each.severity == "benign" and BY_NAME[each.rule].takes is not None
        if is_benign_claim and any(_is_at_lines(each, other) for other in costly):
            del found[each.rule]
    if len(costly) > 1:
        kept = settle_claims(costly, _claimable_time(evidence)).kept
        found = {name: kept.get(name, each) for name, each in found.items() if name in kept or each not in costly}
    return list(found.values())


def _without_faults(found: Mapping[str, Finding]) -> list[str]:
    """The rules whose findings are about a loop without faults."""
    return [
        name for name, rule in BY_NAME.items() if rule.kind == "no_fault" and name in found and not found[name].cause
    ]


def _costly(found: Mapping[str, Finding]) -> list[Finding]:
    """The findings that claim time which costs something."""
    claiming = [found[name] for name, rule in BY_NAME.items() if rule.takes is not None and name in found]
    return [each for each in claiming if each.severity != "benign"]


def _claimable_time(evidence: Evidence) -> ClaimableTime:
    divided, gpu = cells_of(evidence), evidence.gpu.steps
    found = scaled(divided, 1.0 / (divided.where(phase=STEP_PHASES).share or 1.0))
    if gpu is None:
        return ClaimableTime(found, [cell.share for cell in found], sum(cell.share for cell in found))
    beside = sum(cell.cost.high for cell in found if cell.phase not in STEP_PHASES)
    return ClaimableTime(found, [cell.cost.high for cell in found], gpu.idle.high + beside)


def settle_claims(findings: Iterable[Finding], time: ClaimableTime) -> Claimed:
    """The findings that keep most of the time that they claim, the longest claim first.

    A claim has half its weight if its gain may be nothing, and if its rule claims what others leave. Each takes its
    time from cells that no other claims, as far as possible.
    """
    order = sorted(findings, key=lambda each: (BY_NAME[each.rule].kind != "late", -_weight(each)))
    claims = dict[str, list[int]]()
    for each in order:
        takes = BY_NAME[each.rule].takes
        claims[each.rule] = [i for i, cell in enumerate(time.cells) if takes is not None and takes(cell, each)]
    claimants = Counter(i for claim in claims.values() for i in claim)
    held: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # by cell and rule
    kept: dict[str, Finding] = {}
    for finding in order:
        claim, share = claims[finding.rule], finding.share_of_step or 0.0
        reach = min(time.total, sum(time.sizes[i] for i in claim))
        here, everywhere = _kept_by_rule(held, claim), _kept_by_rule(held, held)
        gone = sum(everywhere.values())
        free = min(reach - sum(here.values()), time.total - gone)
        if free < MOST * reach and gone >= MOST * share:
            others = here or everywhere
            holder = kept[max(others, key=others.__getitem__)]
            kept[holder.rule] = _merged(holder, finding)
            continue
        kept[finding.rule] = finding
        for i in sorted(claim, key=claimants.__getitem__):
            part = min(share, time.sizes[i] - sum(held[i].values()))
            held[i][finding.rule] += part
            share -= part
    parts = zip(time.cells, time.sizes, (sum(held[i].values()) for i in range(len(time.sizes))), strict=True)
    left = (scaled([cell], 1.0 - taken / size)[0] for cell, size, taken in parts if size and cell.phase in STEP_PHASES)
    return Claimed(kept, Cells(left))


def _weight(finding: Finding) -> float:
    surely, kind = _is_warning_or_worse(finding) and finding.best.least is not None, BY_NAME[finding.rule].kind
    return (
        (finding.share_of_step or 0.0)
        * (1.0 if surely else MOST)
        * (MOST if kind in ("leftovers", "no_fault") else 1.0)
    )


def _kept_by_rule(held: Mapping[int, Mapping[str, float]], among: Iterable[int]) -> dict[str, float]:
    """The time of some cells that each rule keeps."""
    total: dict[str, float] = defaultdict(float)
    for i in among:
        for rule, part in held.get(i, {}).items():
            total[rule] += part
    return total


def _merged(holder: Finding, gone: Finding) -> Finding:
    """The finding with another finding's fixes for the same time, except fixes that it has itself."""
    is_known = _is_at_lines(gone, holder) and BY_NAME[holder.rule].kind != "late"
    mends_other_time = BY_NAME[gone.rule].kind in ("leftovers", "no_fault") and holder.best.change not in {
        fix.change for fix in gone.fixes if fix.change is not None
    }
    if is_known or mends_other_time:
        return holder
    known = {fix.action for fix in holder.fixes}
    return replace(
        holder,
        fixes=(*holder.fixes, *(fix for fix in gone.fixes if fix.action not in known)),
        where=tuple(dict.fromkeys((*holder.where, *gone.where))),
    )


def _is_at_lines(finding: Finding, of: Finding) -> bool:
    return bool(finding.where) and set(finding.where) <= set(of.where)


def _is_warning_or_worse(finding: Finding) -> bool:
    return finding.severity in ("critical", "warning")
