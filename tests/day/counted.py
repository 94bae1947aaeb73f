"""What the training did by its own count, and what the log says it did."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuimon.records import Exit, Frames, Header, Mark, Notice, Process, Record, Stacks, Steps

#: Records that follow events; all others follow windows.
_BY_EVENT = (Header, Process, Frames, Mark, Notice, Exit)


class Rank(NamedTuple):
    """What a rank did by its own count."""

    pid: int
    steps: int  # each with one update of its optimizer


def made(path: Path) -> tuple[dict[int, Rank], Counter[str]]:
    """The ranks, and all events, as the processes noted them themselves: a line for each life of a process."""
    ranks: dict[int, Rank] = {}
    events = Counter[str]()
    for line in path.read_text().splitlines() if path.exists() else ():
        noted: dict[str, int] = json.loads(line)
        number, pid, updates = noted.pop("rank"), noted.pop("pid"), noted.pop("updates")
        before = ranks.get(number, Rank(pid, 0))
        ranks[number] = before._replace(steps=before.steps + updates)
        events.update(noted)
    return ranks, events


@dataclass(slots=True)
class Logged:
    """What a log adds up to."""

    steps: Counter[int] = field(default_factory=Counter)  # by pid: steps that records tell of
    last_index: dict[int, int] = field(default_factory=dict)  # by pid: the number of the last step
    updates: Counter[int] = field(default_factory=Counter)  # by pid
    windows: Counter[int] = field(default_factory=Counter)  # by pid
    lost_markers: int = 0
    lost_samples: int = 0  # windows of py-spy without samples
    sampled_windows: int = 0
    notices: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # (source, level, message without figures)
    event_bytes: int = 0
    window_bytes: int = 0
    by_type: Counter[str] = field(default_factory=Counter)  # bytes
    exit_code: int | None = None

    def add(self, record: Record) -> None:
        size = len(msgspec.json.encode(record)) + 1
        self.by_type[type(record).__name__] += size
        if isinstance(record, _BY_EVENT):
            self.event_bytes += size
        else:
            self.window_bytes += size
        match record:
            case Steps():
                self.windows[record.pid] += 1
                self.steps[record.pid] += record.count
                self.last_index[record.pid] = record.first_index + record.count
                self.updates[record.pid] += record.updates
                self.lost_markers += record.dropped
            case Stacks():
                self.sampled_windows += 1
                self.lost_samples += record.lost
            case Notice():
                without_figures = "".join("#" if char.isdigit() else char for char in record.message)
                self.notices[record.source, record.level, without_figures[:100]] += 1
            case Exit():
                self.exit_code = record.exit_code


def logged(records: Iterable[Record]) -> Logged:
    """Of a whole log."""
    sums = Logged()
    for record in records:
        sums.add(record)
    return sums
