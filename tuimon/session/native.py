"""What the threads of the run executed, in Python and below it, over any span: CPU time by library and phase."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tuimon.native_code import KERNEL, Kind, kind_of
from tuimon.records import Native
from tuimon.session.series import Series, Span, Stretch

#: Windows of each length that a series holds, the last two minutes as they were recorded.
_ROWS = 32


class NativeUse(NamedTuple):
    """CPU time of one thread, or of several, by library and phase; in samples, each of so many seconds."""

    counts: Mapping[tuple[str, str], int]
    period_s: float

    @property
    def samples(self) -> int:
        """All of its CPU time, the kernel's included."""
        return sum(self.counts.values())

    def within(self, phases: Collection[str]) -> NativeUse:
        """The part of it that lies in these phases; the kernel's is in none."""
        return self._replace(counts={key: count for key, count in self.counts.items() if key[1] in phases})

    @property
    def in_user_code(self) -> NativeUse:
        """The part of it that is not the kernel's."""
        return self.within({phase for _, phase in self.counts} - {KERNEL.name})

    def by_phase(self) -> dict[str, NativeUse]:
        """Its parts in each phase, "" where none is known, the largest first."""
        phases = {phase: self.within((phase,)) for phase in {key[1] for key in self.counts}}
        return dict(sorted(phases.items(), key=lambda part: -part[1].samples))

    def by_library(self) -> dict[str, float]:
        """The share (0..1) of each library, the largest first; empty without samples."""
        found: Counter[str] = Counter()
        for (library, _), count in self.counts.items():
            found[library] += count
        return {library: count / found.total() for library, count in found.most_common()}

    def share(self, *kinds: Kind) -> float | None:
        """The share (0..1) of all libraries of these kinds; None without samples."""
        shares = self.by_library()
        return sum(share for library, share in shares.items() if kind_of(library) in kinds) if shares else None


class NativeTable:
    """Folds Native records."""

    def __init__(self) -> None:
        self.by_pid: defaultdict[int, Series[Stretch]] = defaultdict(lambda: Series(Stretch, _ROWS))
        self._period_s = 0.0

    def add_record(self, record: Native) -> None:
        """Fold a window of a process."""
        self._period_s = record.period_ms / 1e3
        counts: Counter[tuple[int, str, str]] = Counter()
        for thread in record.threads:
            for code in thread.code:
                counts[thread.tid, code.library, code.phase] += code.samples
            in_user_code = sum(code.samples for code in thread.code)
            counts[thread.tid, KERNEL.name, KERNEL.name] += max(
                0, round(thread.cpu_ms / record.period_ms) - in_user_code
            )
        self.by_pid[record.pid].append(Stretch(record.t - record.window_s, record.t), +counts)

    def by_thread(self, pid: int, span: Span) -> dict[int, NativeUse]:
        """The threads of a process that were sampled in a span."""
        counts: defaultdict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
        for (tid, library, phase), count in self.by_pid[pid].counts(span).items() if pid in self.by_pid else ():
            counts[tid][library, phase] += count
        return {tid: NativeUse(own, self._period_s) for tid, own in counts.items()}


def joined(uses: Iterable[NativeUse | None]) -> NativeUse | None:
    """The use of several threads together; None if none was sampled."""
    known = [use for use in uses if use is not None]
    return NativeUse(sum((Counter(use.counts) for use in known), Counter()), known[0].period_s) if known else None
