"""The rule about a training that stands still: a lock, a dead rank or worker, storage that does not answer."""

from __future__ import annotations

from collections.abc import Iterable, Set

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.standstill import First, StandingRank, Standstill, Wait
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import BOUNDARIES, Rule
from tuimon.diagnosis.threshold import MOST, SMALL, Threshold
from tuimon.diagnosis.words import after, at
from tuimon.node_ids import own_id
from tuimon.records import BETWEEN, Place
from tuimon.session.standing import BESIDE, THREAD_ROOT, Standing, groups_text, odd_one, standing

HANG_S = Threshold(
    15.0,
    "seconds without a boundary in any rank, with every thread idle, from which a training may hang",
    "our choice: evaluation, compilation and the start of workers use the CPU, and what waits for a disk, the network"
    " or a person is given longer",
)
SLOW_WAIT_S = Threshold(
    60.0,
    "seconds from which a training may hang that waits for a checkpoint, a disk, the network or a sleep; or for a file,"
    " as long as it is not known whether that is read or written",
    "our choice: longer than checkpoints and downloads usually pause a loop",
)
STACKS_S = Threshold(
    25.0,
    "seconds from which a training may hang whose stacks are not known",
    "our choice: they are taken within ten seconds",
)
HANG_RATIO = Threshold(
    10.0,
    "times the median step that nothing must have moved to count as a hang",
    "our choice: it excuses loops whose steps are long",
)
LONGEST_RATIO = Threshold(
    1.5,
    "times the longest step so far that nothing must have moved, up to a minute, to count as a hang",
    "our choice: it excuses loops that have stood still this long before",
)

_CHECK = "check that line: a lock, a queue, a dead rank or worker, storage that does not answer"
_FORKED = (
    "threads started before the fork are missing in a forked worker: multiprocessing_context='spawn' (or 'forkserver'),"
    " or open the data in the worker"
)

#: How many other threads a hang names: who holds what the training waits for is among the first.
_MOST_OTHERS = 2
#: How many groups of equal stacks its headline names.
_MOST_GROUPS = 3


def hang(evidence: Evidence) -> Finding | None:
    """Nothing has moved in any rank for far longer than a step: a lock, a dead peer, a stuck worker."""
    if evidence.run.has_ended:
        return _most_of_the_run(evidence)
    found = (_judged(still) for still in evidence.standstills if may_hang(still))
    return next((finding for finding in found if finding is not None), None)


def _most_of_the_run(evidence: Evidence) -> Finding | None:
    """A run that has ended and had stood still for longer than it trained; without a step, for most of its time."""
    divided = evidence.run.goodput
    stood_s = divided.parts.get("hang", 0.0) if divided is not None else 0.0
    if divided is None or stood_s < (divided.parts.get("training") or MOST * divided.total_s):
        return None
    places = evidence.last_places
    worker = next((place for pid, place in places.items() if pid != evidence.pid), None)
    return Finding(
        severity="critical",
        headline=(
            f"the training stood still for {after(stood_s)} of the run's {after(divided.total_s)}"
            f"{f': it waited for a worker at {at(worker)}' if worker is not None else ''}"
        ),
        fixes=(Fix(_CHECK),),
        where=tuple(dict.fromkeys(places.values()))[: _MOST_OTHERS + 1],
        evidence={"share_of_run": stood_s / divided.total_s, "stood_still_s": stood_s},
    )


def may_hang(still: Standstill) -> bool:
    """True if nothing moves, though there is work, and nobody is known to be at a prompt: time to take all stacks."""
    if still.quiet_s < max(HANG_S, _usual_s(still)):
        return False
    if any(rank.first and not _is_served(rank.first, rank.wait) for rank in still.ranks):
        return False
    if all(rank.is_stopped for rank in still.ranks):
        return False
    if any(rank.wait == "prompt" or rank.is_still is False for rank in still.ranks):
        return False
    if all(rank.wait == "work" for rank in still.ranks):
        return False
    return all(_is_idle(rank) for rank in still.ranks)


def _is_served(first: First, wait: Wait | None) -> bool:
    """True if a rank waits for what only the run itself can give it, or may, as long as its stack is not known."""
    if wait == "unknown":
        return True
    return wait is None and first.waits_for is not None and not first.may_go_on


def _usual_s(still: Standstill) -> float:
    """How long nothing may move in this loop, as it was so far."""
    median_ms = max((rank.median_ms or 0.0 for rank in still.ranks), default=0.0)
    longest_ms = max((rank.longest_ms or 0.0 for rank in still.ranks), default=0.0)
    return max(HANG_RATIO * median_ms / 1e3, min(LONGEST_RATIO * longest_ms / 1e3, SLOW_WAIT_S))


def _is_idle(rank: StandingRank) -> bool:
    """True if each rank and worker uses no more CPU than heartbeat and watchdog threads do."""
    return rank.cpu_ratio is not None and max((rank.cpu_ratio, *rank.worker_cpu_ratios)) <= SMALL


def _judged(still: Standstill) -> Finding | None:
    quiet_s = still.quiet_s
    if still.has_moved or quiet_s < max(_grace_s(rank, still.taken is not None) for rank in still.ranks):
        return None
    if still.taken is None and any(rank.first for rank in still.ranks):
        return None
    first = still.ranks[0]
    where = f" in any of {len(still.ranks)} ranks" if len(still.ranks) > 1 else ""
    stands = _standing(still)
    if still.stuck:
        stands = f": {still.stuck[0].text}; " + stands.removeprefix(": ")
    stands += _other_end(still)
    longest_ms = max((rank.longest_ms for rank in still.ranks if rank.longest_ms is not None), default=None)
    return Finding(
        severity="critical",
        headline=f"nothing has moved{where} for {after(quiet_s)}{stands}",
        fixes=(Fix(_FORKED if any(rank.forked for rank in still.ranks) else _CHECK),),
        where=tuple(dict.fromkeys(_places(still))),
        evidence={
            "open_for_s": quiet_s,
            "open_phase": first.phase,
            "longest_step_ms": longest_ms,
            **_rank_evidence(still),
            **({"collective": still.stuck[0].text} if still.stuck else {}),
        },
    )


def _grace_s(rank: StandingRank, is_taken: bool) -> float:
    """How long a rank may wait for something outside the training, in its first step also for a start elsewhere."""
    wait = rank.wait
    if rank.first and not rank.first.is_stuck:
        return SLOW_WAIT_S
    if wait == "slow" or (wait == "file" and not is_taken):
        return SLOW_WAIT_S
    return STACKS_S if wait == "unknown" else HANG_S


def _other_end(still: Standstill) -> str:
    """Who would have to send or receive, of the first rank of which that is known, and waits as well."""
    rank = next((rank for rank in still.ranks if rank.peers), None)
    if rank is None:
        return ""
    others = [str(own_id(pid)) for pid in rank.peers if pid != rank.pid]
    if not others:
        return "; the process itself holds the other end"
    who = f"process {others[0]}" if len(others) == 1 else f"processes {', '.join(others[:_MOST_GROUPS])}"
    return f"; {who} {'holds the other end and waits' if len(others) == 1 else 'hold the other end and wait'} too"


def _rank_evidence(still: Standstill) -> dict[str, float | int | str | None]:
    """Evidence about several ranks: how many, and the odd ones by number."""
    if len(still.ranks) + len(still.lost) < 2:
        return {}
    odd = odd_one(standing(still.taken)) if still.taken is not None else None
    odd_ranks = still.lost or (odd.ranks if odd is not None else ())
    return {"ranks": len(still.ranks), "odd_ranks": ", ".join(map(str, odd_ranks)) or None}


def _standing(still: Standstill) -> str:
    """The places of all: by the stacks that were taken, before that by the samples of the first rank."""
    lost = f": rank {', '.join(map(str, still.lost))} has ended" if still.lost else ""
    groups = _groups(still)
    if groups and (len(still.ranks) > 1 or len(groups) > 1):
        return lost + (", " if lost else ": ") + groups_text(groups, _MOST_GROUPS)
    first = still.ranks[0]
    inside = f" in {first.phase}" if first.phase not in (None, BETWEEN) else ""
    others = first.others[:_MOST_OTHERS]
    at_once = ", and a thread at ".join(at(each) for each in (*((first.place,) if first.place else ()), *others))
    is_in_where = not others and not first.peers  # who has peers, waits for them at that line
    return f"{inside}{lost}" if is_in_where else f"{inside}{lost}: {at_once}"


def _places(still: Standstill) -> Iterable[Place]:
    """The lines to inspect, that of the odd one first."""
    if still.taken is not None:
        yield from (group.place for group in _groups(still)[:_MOST_GROUPS] if group.place is not None)
        return
    first = still.ranks[0]
    yield from (*((first.place,) if first.place else ()), *first.others[:_MOST_OTHERS])


def _groups(still: Standstill) -> list[Standing]:
    """The places of ranks, workers, and threads that a rank waits for; empty until the stacks are taken."""
    if still.taken is None:
        return []
    moving = {rank.pid for rank in still.ranks if rank.main_moves}
    return [each for each in standing(still.taken) if each.kind not in BESIDE and not _is_main_of(moving, each)]


def _is_main_of(moving: Set[int], group: Standing) -> bool:
    """True if this is the main thread of one of these, which goes on: what it was at just then holds nobody up."""
    if group.role != "thread" or group.outer or not group.frames or not set(group.pids) <= moving:
        return False
    return group.frames[0].function != THREAD_ROOT


HANG = Rule(
    title="Hang",
    judge=hang,
    explanation=(
        "No rank has come to another boundary for 15 s and far longer than a step, neither ranks nor workers use the"
        " CPU, and stacks do not change. All stacks are then taken once, and the rank or thread that holds up the"
        " others is named first. A wait for a disk, the network or a sleep is given a minute. A process that receives,"
        " a child that works, a prompt, a stopped run and a training that is over do not hang. In the first step it is"
        " judged once the training waits for a batch, a thread or a rank. At the end, standstills count that took"
        " longer than the steps. It abstains without markers."
    ),
    needs=(BOUNDARIES,),
    thresholds=(HANG_S, SLOW_WAIT_S, STACKS_S, HANG_RATIO, LONGEST_RATIO, SMALL, MOST),
    of_moment=True,
    of_end=True,
    is_harm=True,
    before_steps=True,
    contradicts_order=True,
)
