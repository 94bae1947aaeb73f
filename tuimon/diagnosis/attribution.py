"""Time is claimed once: a finding whose time mostly belongs to others goes, and hands over what it advises.

What no finding holds is the rest, whose largest cells are told in words (``rules/rest.py``).

Worked example: the training thread waits at ``loss.item()``, and then makes a batch, for a quarter of each step. The
GPU has nothing to do meanwhile, as the wait has let its queue run dry. That quarter of its time ``sync_point`` and
``input_bound`` both claim. The first, longer by a little, holds the time, and takes over the fixes of the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.cells import STEP, Cell, Cells, cells, scaled
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rule import Rest, Rule
from tuimon.diagnosis.threshold import MOST


class Room(NamedTuple):
    """The time of a step that findings can claim."""

    cells: Sequence[Cell]
    sizes: Sequence[float]  # share of the step of each; with GPU times, what the GPU idles meanwhile at most
    total: float  # of all: what the GPU idles in each phase at most may add up to more than it does in all
    is_idle_time: bool = False


class Held(NamedTuple):
    """The findings that hold most of the time that they claim, by rule, and what of each cell none of them holds."""

    kept: dict[str, Finding]
    left: Sequence[float]


def attributed(
    findings: Iterable[Finding], rules: Mapping[str, Rule], evidence: Evidence | None, *, tells_rest: bool = False
) -> list[Finding]:
    """Without findings whose time is another's. During a hang only errors of a GPU count, too: shares are past.

    Of what is only said of a loop that nothing holds up, the first counts: a larger batch is a guess as long as it is
    not known why a GPU idles. A wait that does no harm is none where one at the same line costs time.

    ``tells_rest``: with what is said of the rest, where nothing holds the loop up.
    """
    found = {finding.rule: finding for finding in findings}
    if "hang" in found and "share_of_run" not in found["hang"].evidence:
        return [each for name, each in found.items() if name in ("hang", "gpu_health")]
    holds_up = any(_is_loud(each) and rules[each.rule].contradicts_order for each in found.values())
    if tells_rest and evidence is not None and not holds_up:
        room = _room(evidence)
        against = tuple(each for each in found.values() if rules[each.rule].contradicts_order)
        rest = Rest(evidence, _left(room, claimed_once(_costly(found, rules), rules, room)), against)
        told = ((name, rule.of_rest(rest)) for name, rule in rules.items() if rule.of_rest and name not in found)
        found |= {name: replace(each, rule=name) for name, each in told if each is not None}
    in_order = [name for name, rule in rules.items() if rule.only_in_order and name in found and not found[name].cause]
    for name in in_order[0 if holds_up else 1 :]:
        del found[name]
    costly = _costly(found, rules)
    for each in list(found.values()):
        is_benign_claim = each.severity == "benign" and rules[each.rule].takes is not None
        if is_benign_claim and any(_is_at_lines(each, other) for other in costly):
            del found[each.rule]
    if len(costly) > 1 and evidence is not None:
        kept = claimed_once(costly, rules, _room(evidence)).kept
        found = {name: kept.get(name, each) for name, each in found.items() if name in kept or each not in costly}
    return list(found.values())


def _costly(found: Mapping[str, Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """The findings that claim time which does harm."""
    claiming = [found[name] for name, rule in rules.items() if rule.takes is not None and name in found]
    return [each for each in claiming if each.severity != "benign"]


def _room(evidence: Evidence) -> Room:
    divided, gpu = cells(evidence), evidence.gpu.steps
    found = scaled(divided, 1.0 / (divided.where(phase=STEP).cpu or 1.0))
    if gpu is None:
        return Room(found, [cell.cpu for cell in found], sum(cell.cpu for cell in found))
    beside = sum(cell.cost.high for cell in found if cell.phase not in STEP)
    return Room(found, [cell.cost.high for cell in found], gpu.idle.high + beside, is_idle_time=True)


def _left(room: Room, held: Held) -> Cells:
    """The cells of a step, as far as nothing holds them."""
    parts = zip(room.cells, room.sizes, held.left, strict=True)
    return Cells(scaled([cell], left / size)[0] for cell, size, left in parts if size and cell.phase in STEP)


def claimed_once(findings: Iterable[Finding], rules: Mapping[str, Rule], room: Room) -> Held:
    """The findings that hold most of the time that they claim; the longest first.

    A claim that may be nothing counts half, and so does one on whatever others leave: half of it explained, it is.
    Each takes its time from cells that no other claims as far as it can. What the GPU idles no cell bounds alone: it is
    laid on calls by their length, but a wait may be why any of them comes late.
    """
    order = sorted(findings, key=lambda each: (not rules[each.rule].claims_first, -_weight(each, rules[each.rule])))
    claims = {each.rule: _claimed(each, rules[each.rule], room) for each in order}
    claimants = Counter(i for claim in claims.values() for i in claim)
    held: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # of each cell, by rule
    kept: dict[str, Finding] = {}
    for finding in order:
        claim, share = claims[finding.rule], finding.share_of_step or 0.0
        reach = min(room.total, sum(room.sizes[i] for i in claim))
        here, everywhere = _by_rule(held, claim), _by_rule(held, held)
        gone = sum(everywhere.values())
        free = min(reach - sum(here.values()), room.total - gone)
        wanted = max(reach, share) if room.is_idle_time else reach
        if free < MOST * wanted and gone >= MOST * share:
            others = here or everywhere
            holder = kept[max(others, key=others.__getitem__)]
            kept[holder.rule] = _with(holder, finding, rules)
            continue
        kept[finding.rule] = finding
        for i in sorted(claim, key=claimants.__getitem__):
            part = min(share, room.sizes[i] - sum(held[i].values()))
            held[i][finding.rule] += part
            share -= part
    return Held(kept, [size - sum(held[i].values()) for i, size in enumerate(room.sizes)])


def _weight(finding: Finding, rule: Rule) -> float:
    surely = _is_loud(finding) and finding.best.least is not None
    return (finding.share_of_step or 0.0) * (1.0 if surely else MOST) * (MOST if rule.claims_rest else 1.0)


def _claimed(finding: Finding, rule: Rule, room: Room) -> list[int]:
    return [i for i, cell in enumerate(room.cells) if rule.takes is not None and rule.takes(cell, finding)]


def _by_rule(held: Mapping[int, Mapping[str, float]], among: Iterable[int]) -> dict[str, float]:
    """The time that each rule holds of some cells."""
    total: dict[str, float] = defaultdict(float)
    for i in among:
        for rule, part in held.get(i, {}).items():
            total[rule] += part
    return total


def _with(holder: Finding, gone: Finding, rules: Mapping[str, Rule]) -> Finding:
    """The finding with what another advises that mends the same time and is not known yet."""
    is_known = _is_at_lines(gone, holder) and not rules[holder.rule].claims_first
    mends_other_time = rules[gone.rule].claims_rest and holder.best.change not in {
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


def _is_loud(finding: Finding) -> bool:
    return finding.severity in ("critical", "warning")
