"""Who waits for whom: time that two findings claim belongs to one of them, by one order of precedence.

Worked example: the training thread waits at ``loss.item()``, and the GPU idles after it because batches come late. The
idle time is one; ``sync_point`` and ``input_bound`` both claim it. It belongs to the longer wait, which takes over the
fixes of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.threshold import LARGE, MOST

#: Share of the step by which two findings may overlap, as samples tell: our choice.
_SAME_TIME = 0.05
#: Any finding whose fix is worth a change.
_LOUD = "loud"
Meets = Callable[[Finding, Finding], bool]


class Attribution(NamedTuple):
    """A row: if all of ``when`` holds of both findings, the time of ``part`` belongs to the finding of ``whole``."""

    whole: str
    part: str
    when: tuple[Meets, ...] = ()
    keeps: Literal["nothing", "fixes", "places"] = "nothing"  # of the part; places come with its fixes
    figures: tuple[str, ...] = ()  # of its evidence


def _share(finding: Finding) -> float:
    return finding.share_of_step or 0.0


def _is_loud(finding: Finding) -> bool:
    return finding.severity in ("critical", "warning")


def _covers(part: float) -> Meets:
    """``whole`` takes at least this part of the time of the other."""
    return lambda whole, other: _share(whole) >= part * _share(other)


def _is_here(whole: Finding, _part: Finding) -> bool:
    return not whole.elsewhere


def _holds_cores(whole: Finding, _part: Finding) -> bool:
    return "delay_ratio" in whole.evidence


def _starve_workers(data: Finding, cores: Finding) -> bool:
    """Unless the run is kept from cores that are there, which is the first thing to mend."""
    return bool(data.evidence.get("workers")) and not cores.elsewhere and "kept_to" not in cores.evidence


def _at_its_lines(whole: Finding, part: Finding) -> bool:
    return set(part.where) <= set(whole.where)


def _in_its_functions(whole: Finding, part: Finding) -> bool:
    functions, others = ({(place.file, place.function) for place in finding.where} for finding in (whole, part))
    return bool(others) and others <= functions


def _has_line(_whole: Finding, part: Finding) -> bool:
    return bool(part.where)


def _costs(whole: Finding, _part: Finding) -> bool:
    return whole.severity != "benign"


def _is_benign(_whole: Finding, part: Finding) -> bool:
    return part.severity == "benign"


def _is_one_rank(late: Finding, _part: Finding) -> bool:
    return not late.cause


def _is_left_on_cpu(cpu: Finding, idle: Finding) -> bool:
    return idle.cause == "model_on_cpu" and not cpu.cause


def _gains_nothing_sure(_whole: Finding, part: Finding) -> bool:
    return part.best.least is None


def _has_its_fix(whole: Finding, part: Finding) -> bool:
    return part.best.change is not None and part.best.change == whole.best.change


def _awaits_one_thread(held: Finding, data: Finding) -> bool:
    """The thread that holds the GIL is also waited for at a queue, in the function in which the data is late."""
    functions = ({(place.file, place.function) for place in finding.where[:1]} for finding in (held, data))
    known = isinstance(held.evidence.get("queue_wait_share"), float) and not held.elsewhere
    return known and bool(set.intersection(*functions))


def _at_the_queue(data: Finding, held: Finding) -> bool:
    waited = held.evidence.get("queue_wait_share")
    return _awaits_one_thread(held, data) and isinstance(waited, float) and waited >= MOST * _share(held)


def _is_one_idle_time(one: Finding, other: Finding) -> bool:
    """Launches that run ahead would cover the making of a batch; a batch that is made sooner leaves less to cover."""
    sync = one if one.rule == "sync_point" else other
    most = sync.evidence.get("gpu_idle_at_most")
    return isinstance(most, float) and _is_loud(sync) and _share(one) + _share(other) > most + _SAME_TIME


#: In this order; what a row has attributed, later ones no longer find.
TABLE: tuple[Attribution, ...] = (
    # too few cores are why the workers are slow; many small parallel loops suffer most, and others are not the reason
    Attribution("input_bound", "cpu_oversubscribed", (_starve_workers,), "fixes", ("cores_waited_for",)),
    Attribution("cpu_oversubscribed", "neighbour", (_is_here, _is_benign)),
    Attribution("cpu_oversubscribed", "optimizer_bound", (_is_here,)),
    # all of an update may be waits for a core that others hold, or, operation by operation, for the GIL
    Attribution("neighbour", "optimizer_bound", (_is_here, _holds_cores, _covers(1.0))),
    Attribution("gil_contention", "optimizer_bound", (_is_here, _covers(MOST))),
    # of a thread that is waited for at a queue and for the GIL, the longer wait
    Attribution("input_bound", "gil_contention", (_at_the_queue,)),
    Attribution("gil_contention", "input_bound", (_awaits_one_thread,)),
    # a compiler makes garbage, and the GPU waits for it
    Attribution("recompiles", "gc_pauses", (_covers(1.0),)),
    Attribution("recompiles", "launch_bound", (_covers(MOST),)),
    # ranks that wait for a late one do not wait for the network, unless more than ranks that take turns explain
    Attribution("straggler_rank", "comm_bound", (_covers(MOST),)),
    Attribution("straggler_rank", "comm_bound", (_is_one_rank,)),
    # what makes a rank late is reported once
    Attribution("straggler_rank", "side_work", (_has_line, _at_its_lines), "fixes"),
    Attribution("straggler_rank", "gc_pauses", (_has_line, _at_its_lines), "fixes"),
    # a copy, an update or a wait may be why launches come late; if all of them do, a wait costs little more
    Attribution("transfer_bound", "launch_bound", (_gains_nothing_sure,)),
    Attribution("optimizer_bound", "launch_bound", (_has_its_fix,), "fixes"),
    Attribution("sync_point", "launch_bound", (_covers(MOST),)),
    Attribution("launch_bound", "sync_point", (_has_line,), "places", ("waiting_share",)),
    # idle time of the GPU belongs to the longer of two waits, a line to one finding
    Attribution("sync_point", "input_bound", (_is_one_idle_time, _covers(1.0)), "fixes"),
    Attribution("input_bound", "sync_point", (_is_one_idle_time,), "fixes"),
    Attribution("transfer_bound", "sync_point", (_at_its_lines,)),
    Attribution("sync_point", "side_work", (_costs, _at_its_lines)),
    # a loop of small operations, a large part of which are checks: what these take is measured, its gain is a guess
    Attribution("slow_setting", "compute_bound_cpu", (_in_its_functions, _covers(LARGE)), "fixes"),
    # a busy core is that wait
    Attribution(_LOUD, "spin_wait", (_has_line, _at_its_lines)),
    Attribution("sync_point", "spin_wait", (_costs, _has_line, _at_its_lines)),
    # a model on the CPU beside an idle GPU is one finding, which names both
    Attribution("compute_bound_cpu", "idle_gpu", (_is_left_on_cpu,)),
)


def attributed(findings: Iterable[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Without findings whose time is another's. During a hang nothing else counts: shares are past.

    Of what is only said of a loop that nothing holds up, the first counts: a larger batch is a guess as long as it is
    not known why a GPU idles.
    """
    found = {finding.rule: finding for finding in findings}
    if "hang" in found and "share_of_run" not in found["hang"].evidence:
        return [found["hang"]]
    holds_up = any(_is_loud(each) and rules[each.rule].contradicts_order for each in found.values())
    in_order = [name for name, rule in rules.items() if rule.only_in_order and name in found and not found[name].cause]
    for rule in in_order[0 if holds_up else 1 :]:
        del found[rule]
    for row in TABLE:
        loud = [rule for rule, each in found.items() if _is_loud(each)]
        for rule in loud if row.whole == _LOUD else [row.whole]:
            whole, part = found.get(rule), found.get(row.part)
            if whole is not None and part is not None and all(meets(whole, part) for meets in row.when):
                found[rule] = _with(whole, part, row)
                del found[row.part]
    return list(found.values())


def _with(whole: Finding, part: Finding, row: Attribution) -> Finding:
    """The finding with what the row keeps of the other."""
    if row.keeps == "nothing":
        return whole
    known = {fix.action for fix in whole.fixes}
    return replace(
        whole,
        fixes=(*whole.fixes, *(fix for fix in part.fixes if fix.action not in known)),
        where=tuple(dict.fromkeys((*whole.where, *part.where))) if row.keeps == "places" else whole.where,
        evidence={**whole.evidence, **{name: part.evidence[name] for name in row.figures}},
    )
