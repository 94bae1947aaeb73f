"""What several rules ask of a Session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tuimon.records import Place
from tuimon.session.rows import HotLine, PhaseRow, PhaseTable
from tuimon.session.session import Session
from tuimon.text import plain


class HotFunction(NamedTuple):
    """A function of the user's and its hottest line; shares are of the samples asked about."""

    place: Place
    share: float  # of the function
    samples: int


def hottest_function(lines: Iterable[HotLine]) -> HotFunction | None:
    """The function in which most of these lines' samples lie, at its hottest line; None without any.

    Lines of several processes may be given: their samples add up.
    """
    samples: dict[tuple[str, str], int] = {}
    best_line: dict[tuple[str, str], HotLine] = {}
    totals: dict[int, int] = {}
    for number, line in enumerate(lines):
        key = (line.place.file, line.place.function)
        samples[key] = samples.get(key, 0) + line.samples
        if key not in best_line or line.samples > best_line[key].samples:
            best_line[key] = line
        totals[number] = line.total
    if not samples:
        return None
    key = max(samples, key=samples.__getitem__)
    return HotFunction(best_line[key].place, samples[key] / max(totals.values()), samples[key])


def hottest_of(placed: Iterable[tuple[Place | None, int]]) -> HotFunction | None:
    """As ``hottest_function``, of samples by their places; shares are of all of them, also of those without a place."""
    counts: Counter[Place | None] = Counter()
    for place, count in placed:
        counts[place] += count
    total = counts.total()
    return hottest_function(HotLine(place, n / total, n, total) for place, n in counts.items() if place is not None)


def merged_lines(groups: Iterable[Sequence[HotLine]]) -> list[HotLine]:
    """Hot lines of several processes as one list, most samples first."""
    counts: dict[Place, int] = {}
    total = 0
    for lines in groups:
        total += lines[0].total if lines else 0
        for line in lines:
            counts[line.place] = counts.get(line.place, 0) + line.samples
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return [HotLine(place, n / total, n, total) for place, n in ordered]


def row(table: PhaseTable | None, name: str) -> PhaseRow | None:
    """One phase of a table."""
    return next((r for r in table.rows if r.name == name), None) if table else None


def step_ms(table: PhaseTable) -> float | None:
    """Mean step time of a table in ms; None where shares are inferred."""
    parts = [r.ms_per_step for r in table.rows if r.name != "eval"]
    return sum(p for p in parts if p is not None) if None not in parts else None


#: Less of a run than this may be its start, when loaders fill their queues: a share near its threshold says nothing.
SETTLED_S = 4.0


def settled(table: PhaseTable) -> bool:
    """Whether a table covers enough of the run for shares that are not plain at once."""
    return table.window_s >= SETTLED_S


def at(place: Place) -> str:
    """``function() file.py:31`` for people."""
    function = "" if place.function.startswith("<") else f"{plain(place.function)}() "
    return f"{function}{plain(place.file.rpartition('/')[2])}:{place.line}"


def percent(ratio: float) -> str:
    """``62 %``."""
    return f"{100 * ratio:.0f} %"


def uses_gpu(session: Session, pid: int) -> bool | None:
    """Whether the process computes on a GPU; None when that cannot be told."""
    process = session.process(pid)
    if process is not None and process.gpu_uuids:
        return True
    gpus = session.gpus()
    if any(gpu.used_by_run for gpu in gpus):
        return True
    if process is not None and process.torch and "+cpu" in process.torch:
        return False
    if gpus or "gpu" in session.notices:  # NVML was asked: no process of ours, or no driver at all
        return False
    return None


def cpu_count(session: Session) -> int:
    """Cores of the machine; 1 where no header told."""
    return session.header.cpu_count if session.header else 1
