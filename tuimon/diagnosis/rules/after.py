"""The rule about a program that stays after its training has ended."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.standstill import Rest, Standstill
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import BOUNDARIES, Rule
from tuimon.diagnosis.threshold import SMALL, TRACE, Threshold
from tuimon.diagnosis.words import after
from tuimon.text import size_text

IDLE_S = Threshold(
    120.0,
    "seconds since the stacks of a program showed it idle below its training loop, from which that is reported",
    "our choice: longer than files, trackers and ranks usually take to be closed",
)
LONG_S = Threshold(
    600.0,
    "the same, from which it is a warning if the program holds a GPU",
    "our choice: others could train for that long",
)
_FIXES: dict[Rest, str] = {
    "sleep": "end the program after its training: leave out the sleep, or sys.exit() in place of it",
    "thread": "end the program after its training: stop the thread that it waits for, or start it with daemon=True",
}
_DOING: dict[Rest, str] = {"sleep": "sleeps", "thread": "waits for a thread of its own"}


def not_ended(evidence: Evidence) -> Finding | None:
    """The training is over, and its process stays: it sleeps, or waits for a thread that does nothing."""
    still = next((each for each in evidence.standstills if each.ranks[0].pid == evidence.pid), None)
    if still is None or still.idle_s is None or evidence.run.has_ended or not is_over(still):
        return None
    rest, idle_s = still.ranks[0].rests, still.idle_s
    if rest is None or idle_s < IDLE_S or not _all_idle(evidence):
        return None
    held = evidence.run.own_gpus
    held_bytes = sum(p.memory_bytes or 0 for row in held for p in row.latest.processes if p.pid in row.run_pids)
    what = f"{size_text(held_bytes)} of GPU memory" if held_bytes else "the GPU" if held else ""
    stays = still.ranks[0]
    places = tuple(dict.fromkeys(stays.others)) or tuple(filter(None, [stays.place]))
    return Finding(
        severity="warning" if held and idle_s >= LONG_S else "info",
        headline=(
            f"the training ended {after(still.quiet_s)} ago, and the process {_DOING[rest]}"
            f"{f' and holds {what}' if what else ''}"
        ),
        fixes=(Fix(_FIXES[rest]),),
        where=places,
        evidence={"over_for_s": still.quiet_s, "idle_for_s": idle_s, "held_bytes": held_bytes or None},
    )


def is_over(still: Standstill) -> bool:
    """True if every rank of a training rests below all loops that it trained in."""
    return all(rank.rests is not None for rank in still.ranks)


def _all_idle(evidence: Evidence) -> bool:
    """True if no process of the run computes, and no kernel of it runs: an evaluation, or an upload, may go on."""
    threads = evidence.run.here.live_threads
    if not threads or any(each.cpu_ratio is None for each in threads):
        return False
    used = max((each.cpu_ratio or 0.0) + each.childrens_cores for each in threads)
    return used <= SMALL and all((row.latest.util_ratio or 0.0) < TRACE for row in evidence.run.own_gpus)


NOT_ENDED = Rule(
    title="Job does not end",
    judge=not_ended,
    explanation=(
        "The training is over, and its process stays for minutes and does nothing. All stacks were taken once: the main"
        " thread of every rank is below all loops in which it trained, and sleeps or waits for a thread. No process of"
        " the run computes, reads or writes, and no kernel runs. A program that accepts connections, is at a prompt or"
        " waits for another process may be wanted, so nothing is said. After ten minutes it is a warning if it holds a"
        " GPU."
    ),
    needs=(BOUNDARIES,),
    thresholds=(IDLE_S, LONG_S, SMALL),
    of_moment=True,
)
