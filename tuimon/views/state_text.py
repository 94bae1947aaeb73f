"""The state of a run in words: of a training that makes no steps, of its nodes, of standstills, and of the sampling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tuimon.diagnosis.words import at
from tuimon.node_ids import own_id
from tuimon.records import Exit, Node
from tuimon.session.sampling import Sampling
from tuimon.session.session import Session
from tuimon.session.standing import Past, Standing, group_text, groups_text, rank_list, standing
from tuimon.session.state import OVER, RunState, StateName, Unseen
from tuimon.views.format import count, duration, number, percent, plain, shorten

if TYPE_CHECKING:
    from tuimon.views.report_types import StateJson

_COMMAND = 60  # longest command line in a sentence
_TOLD_S = 0.05  # less is shown as 0.0s, which tells nothing
_NAMES: dict[StateName, str] = {
    "starting": "starting",
    "unseen": "no step seen",
    "waiting": "waiting for its processes",
    "ended": "ended",
    "training": "training",
    "step_open": "step running",
    "between_steps": "no step",
}


def state_text(state: RunState) -> str:
    """``starting for 14s: importing transformers for 12s``; ``step running for 20s, 2 backward passes: ...``."""
    return f"{state_name(state)} {state_details(state)}".rstrip()


def last_state_text(state: StateJson) -> str:
    """The state for a report without a step: ``It ended after 14s: mostly importing transformers in its last 12s.``

    A log that goes on ends with ``At the end: starting for 14s.``
    """
    return f"{'It' if state.name == 'ended' else 'At the end:'} {state.text}."


def state_name(state: RunState) -> str:
    """``starting``, ``step running``."""
    return _NAMES[state.name]


def state_details(state: RunState) -> str:
    """``for 14s: importing transformers for 12s``; of a run that ended before any step, ``after 14s: mostly ...``.

    The activity is known by windows of some seconds: the end of an import may be in the same one as a short training.
    """
    since = "after" if state.name == "ended" else "for"
    head = [f"{since} {duration(state.for_s)}"] if state.for_s is not None else []
    if (state.backwards or 0) > 1:
        head.append(f"{state.backwards} backward passes")
    place = at(state.place) if state.place is not None else ""
    joined = ", at " if state.doing == OVER else " at "
    inside = joined.join(filter(None, (plain(state.doing or ""), place)))
    if inside and (state.doing_for_s or 0.0) >= _TOLD_S:
        so_long = duration(state.doing_for_s)
        if state.name == "ended":
            inside = f"mostly {inside} in its last {so_long}"
        elif so_long != duration(state.for_s):
            inside += f" for {so_long}"
    return ": ".join(filter(None, (", ".join(head), inside)))


def ended_text(end: Exit) -> str:
    """``ended with exit code 1 at main() train.py:12: KeyError: 1``, with the exception that ended a run, if known."""
    return ": ".join(filter(None, (how_ended(end), plain(end.last_line or ""))))


def how_ended(end: Exit) -> str:
    """``ended with exit code 1 at main() train.py:12``, without the exception that was raised there."""
    if end.signal:
        how = f"killed by {plain(end.signal)}"
    elif end.exit_code is not None:
        how = f"ended with exit code {end.exit_code}"
    else:
        how = "ended by an error" if end.has_failed else "the process has ended"
    return how + (f" at {at(end.raised_at)}" if end.raised_at is not None else "")


#: What helps a script that runs in the Python of PATH, without its environment.
_NAME_ITS_PYTHON = "is it in the script's environment? tuimon run ENV/bin/python train.py"


def end_tip(end: Exit, *, before_torch: bool) -> str | None:
    """What helps after such an end; None where nothing is known to.

    Headless the output is not read: an exception that came before torch, and with it our hooks, is shown by its exit
    code alone, 1.
    """
    if end.last_line:
        return _NAME_ITS_PYTHON if end.last_line.startswith("ModuleNotFoundError: ") else None
    return f"if a module is missing, {_NAME_ITS_PYTHON}" if end.exit_code == 1 and before_torch else None


def unseen_text(unseen: Unseen) -> str:
    """``process 7 (python train.py) uses 3.9 cores and a GPU, but no steps were seen: started with -I ...``."""
    uses = [f"{number(unseen.cores)} cores"] if unseen.cores is not None else []
    uses += ["a GPU"] if unseen.on_gpu else []
    short = shorten(plain(unseen.command), _COMMAND)
    used = " and ".join(uses) or "CPU"
    return f"process {own_id(unseen.pid)} ({short}) uses {used}, but {unseen_reason(unseen)}"


def unseen_reason(unseen: Unseen) -> str:
    """``no steps were seen: started with -I or -E ...``, for where its process is named already."""
    return f"no steps were seen: {plain(unseen.reason)}"


def nodes_text(nodes: Iterable[Node]) -> str | None:
    """Who writes nothing while others do, or has failed: ``node007 silent for 28s``; None where all are well."""
    known = list(nodes)
    silent = [node for node in known if node.state in ("late", "stopped")]
    failed = [node for node in known if node.state == "ended" and node.exit_code]
    parts = []
    if silent:
        longest = duration(max(node.behind_s for node in silent))
        parts.append(f"{_which(silent, len(known))} silent for {longest}")
    if failed and len(failed) < len(known):
        parts.append(f"{_which(failed, len(known))} failed")
    return ", ".join(parts) or None


def _which(those: list[Node], known: int) -> str:
    return plain(those[0].host) if len(those) == 1 else f"{len(those)} of {known} nodes"


def sampling_text(sampling: Sampling) -> str:
    """The figures that are known; failures only where there were any."""
    parts = ["in-process"] if sampling.in_process else []
    if sampling.rate_hz is not None:
        parts.append(f"{sampling.rate_hz:.{0 if sampling.rate_hz >= 9.95 else 1}f} Hz")
    if sampling.coverage_ratio is not None:
        parts.append(f"{percent(sampling.coverage_ratio)} covered")
    if sampling.failed:
        parts.append(f"{sampling.failed} failed")
    if sampling.folded:
        parts.append(f"{sampling.folded} in rare stacks left out")
    if sampling.lost:
        parts.append("1 window lost" if sampling.lost == 1 else f"{sampling.lost} windows lost")
    if sampling.cpu_ratio is not None:
        parts.append(f"{percent(sampling.cpu_ratio, 1)} cpu")
    return " · ".join(parts)


#: Groups that one line names, and that a short list shows.
_IN_LINE = 3
_LISTED = 8


def standstill_head(past: Past, session: Session) -> str:
    """``nothing moved for 41s, at 1m12s, step 340``; of one that goes on, until the latest record."""
    until_s = past.ended_s if past.ended_s is not None else session.now_s
    start_s = session.start_s if session.start_s is not None else past.since_s
    step = f", step {count(past.step)}" if past.step is not None else ""
    return f"nothing moved for {duration(until_s - past.since_s)}, from {duration(past.since_s - start_s)} on{step}"


def standstill_line(past: Past, session: Session) -> str:
    """``nothing moved for 41s, ...: rank 3 in open() data.py:40, 7 ranks in all_reduce() train.py:50``."""
    stands = "; ".join([*(one.text for one in past.stuck), groups_text(standing(past.taken), _IN_LINE)])
    return f"{standstill_head(past, session)}: {stands}"


def list_lines(past: Past) -> list[str]:
    """The stacks in a few lines: a group each, with its ranks and the text of its line; nobody who waits for work."""
    groups = [group for group in standing(past.taken) if group.kind != "idle"]
    lines = [f"flight recorder: {one.text}" for one in past.stuck]
    lines.append(f"all stacks, taken {past.taken.quiet_s:.0f} s after the last progress:")
    for group in groups[:_LISTED]:
        source = f": {plain(group.place.source).strip()}" if group.place is not None and group.place.source else ""
        lines.append(f"  {group_text(group)}{ranks_note(group)}{source}")
    if len(groups) > _LISTED:
        lines.append(f"  and {len(groups) - _LISTED} more groups (key S in the full screen)")
    return lines


def ranks_note(group: Standing) -> str:
    """`` (ranks 0-2, 5)`` behind ``4 ranks``; empty where the words name them already."""
    return f" (ranks {rank_list(group.ranks)})" if group.role == "rank" and len(group.ranks) > 1 else ""
