"""The nodes of a run that are not well, in a few words."""

from __future__ import annotations

from collections.abc import Iterable

from tuimon.records import Node
from tuimon.views.format import duration, plain


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
