"""What the training did by its own count, and what the log says it did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuimon.records import Exit, Frames, Header, Loader, Mark, Notice, Process, Record, Stacks, Steps

#: Records that follow events; all others follow windows.
_BY_EVENT = (Header, Process, Frames, Mark, Notice, Exit)


class Rank(NamedTuple):
    """What a rank did by its own count."""

    pid: int
    updates: int  # of its optimizer, one a step
    lives: int  # 1 and each exec
    has_loader: bool

    @property
    def steps(self) -> int:
        """As tuimon/sources/loop/steps.py finds them: without a DataLoader, from one update to the next."""
        return self.updates if self.has_loader else self.updates - self.lives


def made(path: Path) -> tuple[dict[int, Rank], Counter[str]]:
    """The ranks, and all events, as the processes noted them themselves: a line for each life of a process."""
    ranks: dict[int, Rank] = {}
    events = Counter[str]()
    for line in path.read_text().splitlines() if path.exists() else ():
        noted: dict[str, int] = json.loads(line)
        number, pid, updates = noted.pop("rank"), noted.pop("pid"), noted.pop("updates")
        before = ranks.get(number, Rank(pid, 0, 0, has_loader=number == 0))
        ranks[number] = before._replace(updates=before.updates + updates, lives=before.lives + 1)
        events.update(noted)
    return ranks, events


@dataclass(slots=True)
class Logged:
    """What a log adds up to."""

    steps: Counter[int] = field(default_factory=Counter)  # by pid: steps that records tell of
    last_index: dict[int, int] = field(default_factory=dict)  # by pid: the number of the last step
    updates: Counter[int] = field(default_factory=Counter)  # by pid
    windows: int = 0  # of the longest-lived process
    lost_markers: int = 0
    lost_samples: int = 0  # windows of py-spy without samples
    sampled_windows: int = 0
    epochs: int = 0
    notices: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # (source, level, message without figures)
    event_bytes: int = 0
    window_bytes: int = 0
    by_type: Counter[str] = field(default_factory=Counter)  # bytes
    exit_code: int | None = None


def logged(records: Iterable[Record]) -> Logged:
    """Sums over the records of a log, all its parts in order."""
    out = Logged()
    windows = Counter[int]()
    for record in records:
        size = len(msgspec.json.encode(record)) + 1
        out.by_type[type(record).__name__] += size
        if isinstance(record, _BY_EVENT):
            out.event_bytes += size
        else:
            out.window_bytes += size
        match record:
            case Steps():
                windows[record.pid] += 1
                out.steps[record.pid] += record.count
                out.last_index[record.pid] = record.first_index + record.count
                out.updates[record.pid] += record.updates
                out.lost_markers += record.dropped
            case Stacks():
                out.sampled_windows += 1
                out.lost_samples += record.lost
            case Loader():
                out.epochs += record.starts if record.role == "train" else 0
            case Notice():
                out.notices[record.source, record.level, _without_figures(record.message)] += 1
            case Exit():
                out.exit_code = record.exit_code
    out.windows = max(windows.values(), default=0)
    return out


def _without_figures(message: str) -> str:
    return "".join("#" if char.isdigit() else char for char in message)[:100]
