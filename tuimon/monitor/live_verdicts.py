"""Decides when a run is judged, which orders its sources get as a result, and which training may hang."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rules.hang import is_over, may_hang
from tuimon.diagnosis.verdicts import RANKS_EACH_S, Verdicts
from tuimon.monitor.poller import Pollers
from tuimon.records import StandingProcess
from tuimon.session.series import WINDOW_S
from tuimon.session.session import Session
from tuimon.sources.base import Suspicion
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.window_lengths import LONGEST_S

EVERY_S = 1.0
#: Rules about ranks that wait for each other.
_RANK_RULES = ("straggler_rank", "comm_bound")

#: Rules about a line, and the calls there that are worth counting.
_LINE_RULES = ("sync_point", "transfer_bound", "side_work")
_CALL = re.compile(r"\.(?:item|tolist|numpy|cpu|cuda|to|copy_|nonzero|synchronize)\(")


class LiveVerdicts:
    """Judges a session again and again, and tells its sources what to look at."""

    def __init__(self, pollers: Pollers, table: ProcessTable | None, session: Session) -> None:
        """``table``: None in a replay."""
        self.verdicts = Verdicts(session)
        self._pollers = pollers
        self._table = table
        self._first: str | None = None  # the name of the first finding
        self._judged_s: float | None = None
        self._changed_s: float | None = None  # when the first finding last changed, or was first judged
        self._every_s = EVERY_S  # longer with many ranks

    def is_due(self, now_s: float) -> bool:
        if self._judged_s is None:
            return True
        is_steady = self._changed_s is not None and self._judged_s - self._changed_s >= WINDOW_S
        return now_s - self._judged_s >= self._every_s * (2 if is_steady else 1)

    def judge(self, now_s: float) -> Sequence[Finding]:
        """The findings now."""
        self._judged_s = now_s
        is_read = self._pollers.read_ratio is not None  # a replay judges as it reads
        findings, session = self.verdicts.findings if is_read else self.verdicts.judge(), self.verdicts.session
        first = findings[0].name if findings else None
        if first != self._first or self._changed_s is None:
            self._first, self._changed_s = first, now_s
        # the rank that delays the others, or that the user chose, is sampled most: its line is needed
        late = next((finding.evidence.get("pid") for finding in findings if finding.rule == "straggler_rank"), None)
        if self._table is not None:
            chosen = session.chosen or late
            self._table.sampled_first = chosen if isinstance(chosen, int) else None
            self._table.focus = frozenset(pid for pid in (late, session.trainer()) if isinstance(pid, int))
            waits = any(finding.rule in _RANK_RULES for finding in findings)
            self._table.wants_collectives = frozenset(session.group_of(session.trainer()) if waits else ())
            self._table.wants_calls = self._calls_to_count(findings)
            self._table.suspicion = suspicion(session)
        self._every_s = max(EVERY_S, min(LONGEST_S, len(session.trainers()) / RANKS_EACH_S))
        return findings

    def _calls_to_count(self, findings: Sequence[Finding]) -> dict[int, int]:
        """The process whose calls are to be counted, with the updates in its step."""
        focus = self.verdicts.session.over("recent").focus
        blamed = (each for each in findings if each.rule in _LINE_RULES and each.severity != "benign")
        is_needed = any(_CALL.search(place.source) for each in blamed for place in each.where)
        if not is_needed or not focus.is_marked or not focus.stats.total:
            return {}
        return {focus.pid: max(1, round(focus.stats.updates / focus.stats.total))}


def suspicion(session: Session) -> Suspicion | None:
    """The training that may hang or is over, with all its ranks and their workers; None while a rank makes progress."""
    focus = session.over("recent").focus
    if not focus.pid or session.exit is not None:
        return None
    found = evidence_of(focus).standstills
    still = next((each for each in found if may_hang(each) or is_over(each)), None)
    if still is None:
        return None
    ranks = [
        StandingProcess(rank.pid, "trainer", rank.process.rank, tid=rank.tid if rank.tid != rank.pid else None)
        for rank in still.ranks
    ]
    loops = {rank.pid: [node.frames for node in rank.stacks.noted_loops()] for rank in still.ranks}
    processes = session.run_processes
    workers = (
        StandingProcess(each.pid, "worker", rank.rank)
        for rank in ranks
        for each in (*processes.workers(rank.pid), *processes.children(rank.pid))
    )
    return Suspicion(session.now_s - still.quiet_s, (*ranks, *workers), loops)
