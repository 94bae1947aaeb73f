"""The notices of many nodes, one for each source: its message, and on how many nodes it is so."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from tuimon.errors import UnreadableLog
from tuimon.records import Notice

#: The source of a notice of logs that cannot be read.
UNREADABLE = "unreadable"
#: Most nodes, and most logs, that a notice names.
_NAMED = 3


class JoinedNotices:
    """Folds the notices of all nodes."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Notice]] = {}  # source -> node -> its notice

    def add_notice(self, notice: Notice, host: str, nodes: int) -> Notice:
        """The notice to report of the source now; ``nodes``: of the run."""
        held = self._held.setdefault(notice.source, {})
        held.pop(host, None)
        if notice.level != "ok":
            held[host] = notice
        if not held:
            return structs.replace(notice, pid=0)
        latest = next(reversed(held.values()))
        alike = sorted(host for host, each in held.items() if each.message == latest.message)
        if nodes == len(alike):
            return structs.replace(latest, pid=0)
        return structs.replace(latest, pid=0, message=f"{names(alike)}: {latest.message}")


def unreadable_notice(errors: Sequence[UnreadableLog], t: float) -> Notice:
    """Which logs were left out, or read only in part, while the others were read."""
    more = f"; and {len(errors) - _NAMED} more" if len(errors) > _NAMED else ""
    message = f"read without what is unreadable: {'; '.join(each.message for each in errors[:_NAMED])}{more}"
    return Notice(t=t, pid=0, source=UNREADABLE, level="warning", message=message, hint=errors[0].hint)


def names(hosts: Sequence[str]) -> str:
    """Some nodes: ``n1, n2, n3 and 5 more nodes``."""
    if len(hosts) <= _NAMED + 1:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:_NAMED])} and {len(hosts) - _NAMED} more nodes"
