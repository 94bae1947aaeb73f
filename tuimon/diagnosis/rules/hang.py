"""Rules about a training that stands still: it hangs, or is over and its process stays."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.run import used_gpus
from tuimon.diagnosis.evidence.standstill import Gone, StalledRanks, StaysFor, last_seen
from tuimon.diagnosis.finding import Finding, new_finding
from tuimon.node_ids import own_id
from tuimon.records import BETWEEN
from tuimon.session.standstills import BESIDE, THREAD_ROOT, StandingThreads, groups_text, odd_one, standing_groups
from tuimon.session.state import goodput
from tuimon.text import at, duration_text, size_text
from tuimon.threshold import LARGER, MOST, SMALL, TINY, Threshold

HANG_S = Threshold(
    15.0,
    "seconds without a boundary in any rank, with every thread idle, after which a training counts as hung",
    "our choice: evaluation, compilation and the start of workers use the CPU; waits for a disk, the network or a"
    " person get longer",
)
SLOW_WAIT_S = Threshold(
    60.0,
    "seconds after which a training counts as hung if it waits for a checkpoint, a disk, the network, a sleep, or a"
    " file that it may be reading or writing",
    "our choice: longer than checkpoints and downloads usually pause a loop",
)
STACKS_S = Threshold(
    25.0,
    "seconds after which a training counts as hung if its stacks are not known",
    "our choice: they are taken within ten seconds",
)
HANG_RATIO = Threshold(
    10.0,
    "multiple of the median step for which nothing must have moved to count as a hang",
    "our choice: it spares loops with long steps",
)
IDLE_S = Threshold(
    120.0,
    "seconds that a program must have been idle in the code after its training loop to be reported",
    "our choice: longer than files, trackers and ranks usually take to be closed",
)
LONG_IDLE_S = Threshold(
    600.0,
    "seconds that a program must have been idle after its training for a warning, if it holds a GPU",
    "our choice: others could train for that long",
)

_CHECK = "check that line: a lock, a queue, a dead rank or worker, storage that does not answer"
_FORKED = (
    "threads started before the fork are missing in a forked worker: multiprocessing_context='spawn' (or 'forkserver'),"
    " or open the data in the worker"
)
_GONE = (
    "see why that ended: its traceback is in the output. Catch the exceptions of a thread or process that others wait"
    " for, or give the wait a timeout, so that the training ends with it"
)
#: How many other threads a hang names (the one that holds what the training waits for is among the first), and how many
#: groups of equal stacks.
_MAX_OTHERS, _MAX_GROUPS = 2, 3
#: By the way in which a program stays after its training: words for it, and how to end it.
_STAYS_FOR: dict[StaysFor, tuple[str, str]] = {
    "sleep": ("sleeps", "remove the sleep, or call sys.exit() instead"),
    "thread": ("waits for a thread of its own", "stop the thread that it waits for, or start it with daemon=True"),
}


def hang(evidence: Evidence) -> Finding | None:
    """Nothing has moved in any rank for far longer than a step: a lock, a dead peer, or a stuck worker."""
    judged = (_judged(still) for still in evidence.standstills if may_hang(still))
    found = (_most_of_the_run(evidence),) if evidence.view.session.exit is not None else judged
    return next((each for each in found if each is not None), None)


def _most_of_the_run(evidence: Evidence) -> Finding | None:
    """A finished run that stood still for longer than it trained or, if it has no step, for most of its time."""
    divided = goodput(evidence.view.session)
    stood_s = divided.parts.get("hang", 0.0) if divided is not None else 0.0
    if divided is None or stood_s < (divided.parts.get("training") or MOST * divided.total_s):
        return None
    places, gone = last_seen(evidence)
    worker = next((place for pid, place in places.items() if pid != evidence.pid), None)
    return new_finding(
        f"the training stood still for {duration_text(stood_s)} of the run's {duration_text(divided.total_s)}"
        f"{f': {_ended(gone)}' if gone else f': it waited for a worker at {at(worker)}' if worker else ''}",
        _GONE if gone else _CHECK,
        severity="critical",
        at=[*filter(None, (*places.values(), gone and gone.place))][: _MAX_OTHERS + 1],
        share_of_run=stood_s / divided.total_s,
        stood_still_s=stood_s,
    )


def may_hang(still: StalledRanks) -> bool:
    """True if nothing moves although there is work, and no rank is known to be at a prompt: time to take all stacks."""
    ranks, waits = still.ranks, [rank.wait for rank in still.ranks]
    median_ms = max(rank.step_ms(0.5) or 0.0 for rank in ranks)
    longest_ms = max(rank.step_ms(1.0) or 0.0 for rank in ranks)
    usual_s = max(HANG_RATIO * median_ms / 1e3, min(LARGER * longest_ms / 1e3, SLOW_WAIT_S))
    if still.quiet_s < max(HANG_S, usual_s):
        return False
    if "prompt" in waits or all(wait == "work" for wait in waits) or all(rank.is_stopped for rank in ranks):
        return False
    for rank in ranks:
        # A rank in its first step may hang only if it waits for the run itself, or if its stack is unknown.
        is_served = rank.wait is None and rank.first != "may_go_on"
        if rank.has_same_stack is False or (rank.first is not None and rank.wait != "unknown" and not is_served):
            return False
    # Heartbeat and watchdog threads use at most that much CPU.
    return all(rank.cpu_ratio is not None and rank.cpu_ratio <= SMALL for rank in ranks)


def _judged(still: StalledRanks) -> Finding | None:
    quiet_s, ranks, taken = still.quiet_s, still.ranks, still.taken
    for rank in ranks:  # a rank in its first step may wait for a start elsewhere
        is_slow = rank.first not in (None, "stuck") or rank.wait == "slow" or (rank.wait == "file" and taken is None)
        grace_s = SLOW_WAIT_S if is_slow else STACKS_S if rank.wait == "unknown" else HANG_S
        if still.has_moved or quiet_s < grace_s:
            return None
    if taken is None and any(rank.first for rank in ranks):
        return None
    groups = _groups(still)
    stands = _standing(still, groups)
    if still.stuck:
        stands = f": {still.stuck[0].text}; " + stands.removeprefix(": ")
    where = [group.place for group in groups[:_MAX_GROUPS]]
    if taken is None:
        where = [ranks[0].place, *ranks[0].others[:_MAX_OTHERS]]
    is_held_up = ranks[0].others or any(group.role == "thread" for group in groups)  # by something that is still there
    gone = next((rank.gone for rank in ranks if rank.gone is not None), None) if not is_held_up else None
    if gone is not None:
        where.append(gone.place)
        stands += f"{'; ' if ':' in stands else ': '}{_ended(gone)}"
    several = {}
    if len(ranks) + len(still.lost) > 1:
        odd = odd_one(groups)
        odd_ranks = still.lost or (odd.ranks if odd is not None else ())
        several = {"ranks": len(ranks), "odd_ranks": ", ".join(map(str, odd_ranks)) or None}
    in_ranks = f" in any of {len(ranks)} ranks" if len(ranks) > 1 else ""
    return new_finding(
        f"nothing has moved{in_ranks} for {duration_text(quiet_s)}{stands}{_other_end(still) if gone is None else ''}",
        _FORKED if any(rank.waits_for_thread_lost_in_fork for rank in ranks) else _GONE if gone is not None else _CHECK,
        severity="critical",
        at=where,
        evidence={
            "open_for_s": quiet_s,
            "open_phase": ranks[0].phase,
            "longest_step_ms": max(filter(None, (rank.step_ms(1.0) for rank in ranks)), default=None),
            **several,
            **({"collective": still.stuck[0].text} if still.stuck else {}),
        },
    )


def _ended(gone: Gone) -> str:
    """``its queue is full, and thread event-writer has ended, last seen in write() log.py:9``."""
    place = f", last seen in {at(gone.place)}" if gone.place is not None else ""
    return f"{f'its queue is {gone.queue}, and ' if gone.queue else ''}{gone.who} has ended{place}"


def _groups(still: StalledRanks) -> list[StandingThreads]:
    """The places of ranks, workers, and threads that ranks wait for, the odd one first; empty before stacks are taken.

    A main thread that goes on while another thread trains is left out: its place holds nobody up.
    """
    moving = {rank.pid for rank in still.ranks if rank.main_moves}
    return [
        each
        for each in (standing_groups(still.taken) if still.taken is not None else ())
        if each.kind not in BESIDE
        and (
            each.role != "thread"
            or each.outer
            or not each.frames
            or not set(each.pids) <= moving
            or each.frames[0].function == THREAD_ROOT
        )
    ]


def _standing(still: StalledRanks, groups: Sequence[StandingThreads]) -> str:
    """The places of all processes, from the stacks that were taken; until then from the samples of the first rank."""
    lost = f": rank {', '.join(map(str, still.lost))} has ended" if still.lost else ""
    if groups and (len(still.ranks) > 1 or len(groups) > 1):
        return lost + (", " if lost else ": ") + groups_text(groups, _MAX_GROUPS)
    first = still.ranks[0]
    inside = f" in {first.phase}" if first.phase not in (None, BETWEEN) else ""
    others = first.others[:_MAX_OTHERS]
    if not others and not first.peers:  # a rank with peers waits for them at that line; else ``where`` has the line
        return f"{inside}{lost}"
    places = [place for place in (first.place, *others) if place is not None]
    return f"{inside}{lost}: {', and a thread at '.join(map(at, places))}"


def _other_end(still: StalledRanks) -> str:
    """The process at the other end of the connection, for the first rank whose other end is known and waits as well."""
    rank = next((rank for rank in still.ranks if rank.peers), None)
    if rank is None:
        return ""
    others = [str(own_id(pid)) for pid in rank.peers if pid != rank.pid]
    if not others:
        return "; the other end of its connection is in the same process"
    return f"; process {others[0]}, at the other end of its connection, waits too"


# -- when the training is over


def not_ended(evidence: Evidence) -> Finding | None:
    """The training is over but its process stays: it sleeps, or waits for a thread that does nothing."""
    still = next((each for each in evidence.standstills if each.ranks[0].pid == evidence.pid), None)
    if still is None or still.idle_s is None or evidence.view.session.exit is not None or not is_over(still):
        return None
    stays, idle_s, threads = still.ranks[0], still.idle_s, evidence.machine.live_threads
    held = used_gpus(evidence.view, evidence.machine.node)
    # if a process of the run computes, or a kernel of it runs, an evaluation or an upload may go on
    used = [each.cpu_ratio + each.childrens_cores for each in threads if each.cpu_ratio is not None]
    if len(used) < len(threads) or max(used, default=1.0) > SMALL or stays.stays_for is None or idle_s < IDLE_S:
        return None
    if any((row.latest.util_ratio or 0.0) >= TINY for row in held):
        return None
    held_bytes = sum(p.memory_bytes or 0 for row in held for p in row.latest.processes if p.pid in row.run_pids)
    what = f"{size_text(held_bytes)} of GPU memory" if held_bytes else "the GPU" if held else ""
    does, how = _STAYS_FOR[stays.stays_for]
    return new_finding(
        f"the training ended {duration_text(still.quiet_s)} ago, and the process {does}"
        f"{f' and holds {what}' if what else ''}",
        f"end the program after its training: {how}",
        severity="warning" if held and idle_s >= LONG_IDLE_S else "info",
        at=stays.others or stays.place,
        over_for_s=still.quiet_s,
        idle_for_s=idle_s,
        held_bytes=held_bytes or None,
    )


def is_over(still: StalledRanks) -> bool:
    """True if every rank of a training has left all loops in which it trained, and rests."""
    return all(rank.stays_for is not None for rank in still.ranks)
