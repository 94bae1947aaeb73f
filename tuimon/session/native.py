"""What the threads of the run executed, in Python and below it, over any span: CPU time by library and phase."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from tuimon.native_code import Kind, kind_of
from tuimon.records import Native
from tuimon.session.series import Series, Span, Stretch

#: Windows of each length that a series holds, the last two minutes as they were recorded.
_ROWS = 64


class NativeUse(Counter[tuple[str, str]]):
    """CPU time of one thread, or of several, by library and phase, in samples; empty if none was sampled."""

    @classmethod
    def joined(cls, uses: Iterable[NativeUse]) -> NativeUse:
        """The use of several threads together."""
        return cls(sum(uses, Counter[tuple[str, str]]()))

    def within(self, phases: Collection[str]) -> NativeUse:
        """The part of it that lies in these phases."""
        return NativeUse({key: count for key, count in self.items() if key[1] in phases})

    def without(self, *kinds: Kind, part: float = 1.0) -> NativeUse:
        """What is left without these kinds of libraries, or without this part (0..1) of the whole in them."""
        gone = min(1.0, part / (self.share(*kinds) or 1.0))
        return NativeUse({key: round(n * (1.0 - gone)) if kind_of(key[0]) in kinds else n for key, n in self.items()})

    def by_phase(self) -> dict[str, NativeUse]:
        """Its parts in each phase, "" where none is known, the largest first."""
        phases = {phase: self.within((phase,)) for _, phase in self}
        return dict(sorted(phases.items(), key=lambda part: -part[1].total()))

    def by_library(self) -> dict[str, float]:
        """The share (0..1) of each library, the largest first."""
        found = Counter[str]()
        for (library, _), count in self.items():
            found[library] += count
        return {library: count / found.total() for library, count in found.most_common() if count}

    def share(self, *kinds: Kind) -> float | None:
        """The share (0..1) of all libraries of these kinds; None without samples."""
        return sum(share for name, share in self.by_library().items() if kind_of(name) in kinds) if self else None


class NativeWindows(Series[Stretch]):
    """What the threads of a process executed, window by window."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Stretch, _ROWS)

    def add_record(self, record: Native) -> None:
        """Fold a window."""
        self.fold(record, {(each.tid, each.library, each.phase): each.samples for each in record.code})

    def by_thread(self, span: Span) -> dict[int, NativeUse]:
        """The threads that were sampled in a span."""
        found = defaultdict[int, NativeUse](NativeUse)
        for (tid, library, phase), count in self.counts(span).items():
            found[tid][library, phase] += count
        return found
