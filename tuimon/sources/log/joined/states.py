"""Reports on the nodes of a run as a whole: who is late, how the run ended."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tuimon.records import Exit, Node, Notice
from tuimon.sources.log.joined.node_log import NodeLog
from tuimon.sources.log.joined.notices import names


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
