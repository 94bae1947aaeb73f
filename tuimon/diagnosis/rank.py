"""Which finding comes first, and which are part of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from msgspec.structs import replace

from tuimon.diagnosis.finding import Finding, Severity
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.diagnosis.severity import least_gain, likely_gain

#: Gravest first.
SEVERITY = {severity: place for place, severity in enumerate(get_args(Severity))}
_ByRule = dict[str, Finding]
#: Share of the time in communication that ranks which are late in turn must explain to be the reason, and of an
#: update's time the wait for the GIL: our choice.
_MOST = 0.5
#: Share of the step by which two findings may overlap, as samples tell: our choice.
_SAME_TIME = 0.05
LOUD = ("critical", "warning")


def ranked(findings: list[Finding]) -> list[Finding]:
    """The findings by severity, then by gain: the first is what to fix first; harm comes first of all.

    Causes outside the run come after those inside. That a loop is in order, its GPU or CPU the
    bottleneck, comes before what is benign, and before what is not worth a fix.
    """
    return sorted(findings, key=_rank)


def is_minor(rule: str, severity: str) -> bool:
    """True if a rule has found something, but nothing whose fix gains enough to be the headline of a run."""
    return severity == "info" and rule in BY_NAME and BY_NAME[rule].contradicts_order


def _rank(finding: Finding) -> tuple[int, bool, bool, bool, float]:
    rule = BY_NAME[finding.rule]
    gain = likely_gain(finding)
    return _gravity(finding), not rule.is_harm, rule.from_outside, is_minor(finding.rule, finding.severity), -gain


def _gravity(finding: Finding) -> int:
    return SEVERITY[BY_NAME[finding.rule].ranked_as or finding.severity]


def merged(findings: list[Finding]) -> list[Finding]:
    """Without findings that another one explains or contradicts. During a hang nothing else counts: shares are past."""
    by_rule = {finding.rule: finding for finding in findings}
    if "hang" in by_rule:
        return [by_rule["hang"]]
    for merge in _MERGES:
        merge(by_rule)
    return list(by_rule.values())


def _merge_cores(by_rule: _ByRule) -> None:
    """Too few cores are why the workers are slow: with ``input_bound`` that is evidence, not a second finding."""
    data, cores = by_rule.get("input_bound"), by_rule.get("cpu_oversubscribed")
    is_kept = cores is not None and "kept_to" in cores.evidence  # from cores that are there: that is the first to mend
    if data is not None and cores is not None and data.evidence.get("workers") and not (cores.elsewhere or is_kept):
        evidence = {**data.evidence, "cores_waited_for": cores.evidence["cores_waited_for"]}
        by_rule["input_bound"] = replace(data, evidence=evidence, other_fixes=(*data.other_fixes, *cores.fixes))
        del by_rule["cpu_oversubscribed"]
    if cores is not None and "cpu_oversubscribed" in by_rule and not cores.elsewhere:
        _drop_benign(by_rule, "neighbour")
        by_rule.pop("optimizer_bound", None)  # its many small parallel loops suffer most from too few cores


def _merge_neighbours(by_rule: _ByRule) -> None:
    """If others hold the cores for longer than the update takes, all of the update may be waits for a core."""
    others, update = by_rule.get("neighbour"), by_rule.get("optimizer_bound")
    if others is None or update is None or others.elsewhere:
        return
    of_cores = "delay_ratio" in others.evidence
    if of_cores and (others.share_of_step or 0.0) >= (update.share_of_step or 0.0):
        del by_rule["optimizer_bound"]


def _merge_gil(by_rule: _ByRule) -> None:
    """The update's many small operations each wait for the GIL: where that takes long, it is no long update.

    If the training waits for a thread both at a queue and for the GIL, the longer wait is the finding, with both gains.
    """
    held, update, data = (by_rule.get(rule) for rule in ("gil_contention", "optimizer_bound", "input_bound"))
    if held is None or held.elsewhere:
        return
    if update is not None and (held.share_of_step or 0.0) >= _MOST * (update.share_of_step or 0.0):
        del by_rule["optimizer_bound"]
    queue_wait = held.evidence.get("queue_wait_share")
    if data is None or not isinstance(queue_wait, float) or not _in_one_function(held, data):
        return
    del by_rule["gil_contention" if 2 * queue_wait >= (held.share_of_step or 0.0) else "input_bound"]


def _in_one_function(one: Finding, other: Finding) -> bool:
    functions = ({(place.file, place.function) for place in finding.where[:1]} for finding in (one, other))
    return bool(set.intersection(*functions))


def _merge_ranks(by_rule: _ByRule) -> None:
    """Ranks that wait for a late one do not wait for the network; what makes it late is reported once."""
    late = by_rule.get("straggler_rank")
    if late is None:
        return
    comm = by_rule.get("comm_bound")
    if comm is not None and (not late.cause or (late.share_of_step or 0.0) >= _MOST * (comm.share_of_step or 0.0)):
        del by_rule["comm_bound"]  # else there is more waiting than ranks that take turns being late explain
    for rule in ("side_work", "gc_pauses"):
        work = by_rule.get(rule)
        if work is not None and work.where and set(work.where) <= set(late.where):
            late = by_rule["straggler_rank"] = replace(late, other_fixes=(*late.other_fixes, *work.fixes))
            del by_rule[rule]


def _merge_launches(by_rule: _ByRule) -> None:
    """If all launches come too late, a synchronisation costs little more: its line is named along with them.

    It is the finding itself where most of the GPU's idle time follows from it. So is an update whose launches are what
    comes too late, and a copy that may be all that is taken for idle time.
    """
    launches, sync, update = (by_rule.get(rule) for rule in ("launch_bound", "sync_point", "optimizer_bound"))
    if launches is None:
        return
    if "transfer_bound" in by_rule and least_gain(launches) is None:
        del by_rule["launch_bound"]
        return
    if update is not None and launches.change is not None and launches.change == update.change:
        others = [fix for fix in launches.fixes if fix.action != update.action]
        by_rule["optimizer_bound"] = replace(update, other_fixes=(*update.other_fixes, *others))
        del by_rule["launch_bound"]
        return
    if sync is None or not sync.where:
        return
    if 2 * (sync.share_of_step or 0.0) >= (launches.share_of_step or 0.0):
        del by_rule["launch_bound"]
        return
    place = sync.where[0]
    by_rule["launch_bound"] = replace(
        launches,
        where=tuple(dict.fromkeys((*launches.where, place))),
        other_fixes=(*launches.other_fixes, *sync.fixes),
        evidence={**launches.evidence, "waiting_share": sync.evidence["waiting_share"]},
    )
    del by_rule["sync_point"]


def _merge_idle(by_rule: _ByRule) -> None:
    """The GPU's idle time belongs to one finding: of a wait for the GPU and one for data, to the longer one.

    Launches that run ahead would cover the making of a batch; a batch that is made sooner leaves less to cover.
    """
    sync, data = by_rule.get("sync_point"), by_rule.get("input_bound")
    most = sync.evidence.get("gpu_idle_at_most") if sync is not None else None
    if sync is None or data is None or not isinstance(most, float) or sync.severity not in LOUD:
        return
    if (sync.share_of_step or 0.0) + (data.share_of_step or 0.0) <= most + _SAME_TIME:
        return
    kept, other = sorted((sync, data), key=lambda finding: -(finding.share_of_step or 0.0))
    by_rule[kept.rule] = replace(kept, other_fixes=(*kept.other_fixes, *other.fixes))
    del by_rule[other.rule]


def _merge_waits(by_rule: _ByRule) -> None:
    """A line is reported once as harmful; side work that only waits for the GPU is that wait."""
    copy, sync, side = by_rule.get("transfer_bound"), by_rule.get("sync_point"), by_rule.get("side_work")
    if copy is not None and sync is not None and set(sync.where) <= set(copy.where):
        del by_rule["sync_point"]
    elif sync is not None and sync.severity != "benign" and side is not None and set(side.where) <= set(sync.where):
        del by_rule["side_work"]
    told = {place for f in by_rule.values() if f.severity in LOUD for place in f.where}
    if sync is not None and sync.severity == "info":  # it says itself that the busy core is that wait
        told.update(sync.where)
    spin = by_rule.get("spin_wait")
    if spin is not None and spin.where and set(spin.where) <= told:
        del by_rule["spin_wait"]


def _merge_room(by_rule: _ByRule) -> None:
    """A GPU that something holds up has room only because of that."""
    if _loud(by_rule) or "compute_bound" in by_rule:
        by_rule.pop("small_batch", None)


def _merge_order(by_rule: _ByRule) -> None:
    """A loop with something to fix is not in order."""
    if _loud(by_rule):
        for rule in ("compute_bound_cpu", "compute_bound"):
            if rule in by_rule and not by_rule[rule].cause:
                del by_rule[rule]


def _loud(by_rule: _ByRule) -> bool:
    severe = (rule for rule, finding in by_rule.items() if finding.severity in LOUD)
    return any(BY_NAME[rule].contradicts_order for rule in severe)


_MERGES: tuple[Callable[[_ByRule], None], ...] = (
    _merge_cores,
    _merge_neighbours,
    _merge_gil,
    _merge_ranks,
    _merge_launches,
    _merge_idle,
    _merge_waits,
    _merge_room,
    _merge_order,
)


def _drop_benign(by_rule: _ByRule, rule: str) -> None:
    if rule in by_rule and by_rule[rule].severity == "benign":
        del by_rule[rule]
