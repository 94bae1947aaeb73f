"""Reports on the nodes of a run as a whole: whose clock is wrong, who is late, how the run ended."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tuimon.records import Exit, Node, Notice
from tuimon.sources.log.joined.clocks import Comparison, compare
from tuimon.sources.log.joined.node_log import NodeLog
from tuimon.sources.log.joined.notices import names


def check_clocks(logs: Sequence[NodeLog]) -> Notice | None:
    """Compare all clocks by the steps and correct those that are wrong; None without steps on two nodes."""
    tracked = [log for log in logs if log.clock.track is not None and log.header.mode == "run"]
    if len(tracked) < 2:
        return None
    reference = min(tracked, key=lambda log: log.clock.track.rank if log.clock.track else 0)
    found: list[tuple[NodeLog, Comparison]] = []
    for log in tracked:
        comparison = compare(log.clock, reference.clock) if log.number != reference.number else None
        if comparison is not None:
            found.append((log, comparison))
            if comparison.is_wrong:
                log.clock_ahead_s = comparison.ahead_s
    return _clock_notice(found, len(logs)) if found else None


def nodes_of(logs: Sequence[NodeLog], newest_unix_s: float) -> list[Node]:
    """The nodes as of now; one with several logs as the one of them that is furthest behind and goes on."""
    found: dict[int, Node] = {}
    for node in (log.node(newest_unix_s) for log in logs):
        known = found.get(node.number)
        if known is None or (node.state != "ended", node.behind_s) > (known.state != "ended", known.behind_s):
            found[node.number] = node
    return list(found.values())


def node_notice(logs: Sequence[NodeLog], newest_unix_s: float) -> Notice:
    """Which nodes are late, have stopped writing or have failed, while others go on."""
    nodes = nodes_of(logs, newest_unix_s)
    parts = []
    for state, words in (("late", "nothing written for"), ("stopped", "stopped writing")):
        those = [node for node in nodes if node.state == state]
        if those:
            most_s = max(node.behind_s for node in those)
            ago = f"{most_s:.0f} s" + (" before the others" if state == "stopped" else "")
            parts.append(f"{names([node.host for node in those])}: {words} {ago}")
    failed = [node for node in nodes if node.state == "ended" and node.exit_code]
    if failed and len(failed) < len(nodes):
        code = failed[0].exit_code
        parts.append(f"{names([node.host for node in failed])}: ended with exit code {code}")
    if not parts:
        return Notice(t=0.0, pid=0, source="nodes", level="ok", message="all nodes write")
    message = f"of {len(nodes)} nodes, {'; '.join(parts)}"
    return Notice(t=0.0, pid=0, source="nodes", level="warning", message=message)


def joined_exit(logs: Sequence[NodeLog]) -> Exit | None:
    """How the run ended: as the first node that failed; None while any node goes on."""
    ends = [(log, log.exit) for log in logs if log.exit is not None]
    if len(ends) < len(logs):
        return None
    decisive = min(ends, key=lambda end: (not end[1].exit_code, end[1].exit_code is not None, end[1].t))[1]
    survivors = [pid for _, end in ends for pid in end.survivors]
    return msgspec.structs.replace(decisive, t=max(end.t for _, end in ends), survivors=survivors)


def _clock_notice(found: Sequence[tuple[NodeLog, Comparison]], nodes: int) -> Notice:
    wrong = [(log, each) for log, each in found if each.is_wrong]
    right_s = max((abs(each.ahead_s) + each.residual_s for _, each in found if not each.is_wrong), default=None)
    parts = []
    if wrong:
        log, worst = max(wrong, key=lambda pair: abs(pair[1].ahead_s))
        off = f"{abs(worst.ahead_s):.1f} s {'ahead' if worst.ahead_s > 0 else 'behind'}"
        more = f" (of {len(wrong)} that are wrong)" if len(wrong) > 1 else ""
        parts.append(f"the clock of {log.label} is {off}{more}: corrected by its steps, within {_ms(worst.residual_s)}")
    if right_s is not None:
        parts.append(f"the steps of {len(found) + 1 - len(wrong)} of {nodes} nodes agree within {_ms(right_s)}")
    return Notice(t=0.0, pid=0, source="clocks", level="warning" if wrong else "info", message="; ".join(parts))


def _ms(seconds: float) -> str:
    return f"{max(1.0, seconds * 1e3):.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
