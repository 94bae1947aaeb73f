"""The tables of a trace: operators, kernels, waits of the CPU for the GPU; the heaviest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from tuimon.records import TracedSync, TracedWork
from tuimon.trace.events import Events, Kind, Stretch, Stretches, place_of
from tuimon.trace.gpu import Gpu
from tuimon.trace.nesting import Nesting
from tuimon.trace.syncs import CpuWait

#: A line is all of a row from this share of its time on.
_ALL = 0.95
#: A line with less of a row's time does not stand for it: it was called from many, or sampled too seldom.
_STANDS_FOR = 1 / 3


class _Sum(Struct):
    count: int = 0
    total_ns: int = 0
    gpu_ns: int = 0
    phases: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lines: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # of the user's code: ns there

    def add(self, length_ns: int, phase: str, line: str = "") -> None:
        """Add one more, in a phase and at a line of the user's code."""
        self.count += 1
        self.total_ns += length_ns
        self.phases[phase] += length_ns
        self.lines[line] += length_ns

    @property
    def where(self) -> str:
        """The line with most of it, ``main() train.py:44``, and its share where that is not nearly all; or ""."""
        known = {line: ns for line, ns in self.lines.items() if line}
        line = max(known, key=lambda name: known[name], default="")
        share = self.lines[line] / (sum(self.lines.values()) or 1)
        if share < _STANDS_FOR:
            return ""
        return line if share >= _ALL else f"{line} ({100 * share:.0f} %)"

    @property
    def phase(self) -> str:
        """The phase with most of it."""
        return max(self.phases, key=lambda name: self.phases[name], default="")


def operator_rows(
    events: Events, nesting: Nesting, phases: Stretches, whole: Stretch, gpus: Sequence[Gpu], lines: Stretches
) -> list[TracedWork]:
    """All operators that began in the steps; ``lines``: where the training thread was."""
    sums: dict[int, _Sum] = defaultdict(_Sum)
    for i in events.begun_in(whole):
        if events.kind[i] == Kind.OPERATOR:
            line = lines.name_at((events.begin_ns[i] + events.end_ns[i]) // 2)
            sums[events.name[i]].add(nesting.self_ns[i], phases.name_at(events.begin_ns[i]), line)
    for gpu in gpus:
        for work in gpu.works:
            launch = gpu.launches.get(events.correlation[work])
            operator = nesting.operator[launch.call] if launch is not None else -1
            if operator >= 0 and events.name[operator] in sums:
                sums[events.name[operator]].gpu_ns += events.length_ns(work)
    rows = [
        TracedWork(events.names[n], s.phase, s.count, s.total_ns, s.gpu_ns if gpus else None, s.where)
        for n, s in sums.items()
    ]
    return sorted(rows, key=lambda row: (-max(row.total_ns, row.gpu_ns or 0), row.name))


def kernel_rows(events: Events, phases: Stretches, gpus: Iterable[Gpu]) -> list[TracedWork]:
    """All kernels that were launched in the steps."""
    sums: dict[int, _Sum] = defaultdict(_Sum)
    for gpu in gpus:
        for i in gpu.works:
            if events.kind[i] == Kind.KERNEL:
                sums[events.name[i]].add(events.length_ns(i), phases.name_at(gpu.called_ns(events, i)))
    rows = [TracedWork(events.names[n], s.phase, s.count, s.total_ns) for n, s in sums.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def sync_rows(
    events: Events, nesting: Nesting, phases: Stretches, waits: Iterable[CpuWait], lines: Stretches
) -> list[TracedSync]:
    """The CPU's waits by call, operator and line; ``lines``: where the training thread was."""
    sums: dict[tuple[str, str, str], _Sum] = defaultdict(_Sum)
    for wait in waits:
        i, operator = wait.call, nesting.operator[wait.call]
        where = _where(events, nesting.python[i]) or lines.name_at((events.begin_ns[i] + events.end_ns[i]) // 2)
        found = sums[events.name_of(i), events.name_of(operator) if operator >= 0 else "", where]
        found.add(wait.waited_ns, phases.name_at(events.begin_ns[i]))
    rows = [TracedSync(call, op, s.phase, where, s.count, s.total_ns) for (call, op, where), s in sums.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.call, row.operator))


def _where(events: Events, python: int) -> str:
    place = place_of(events.name_of(python)) if python >= 0 else None
    return f"{place.function}() {place.file.rsplit('/', 1)[-1]}:{place.line}" if place is not None else ""
