"""The tables of a trace: operators, kernels, copies, launches, waits of GPU and CPU; the heaviest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from tuimon.records import TracedSync, TracedWork
from tuimon.trace.events import Events, Kind, Stretch, Stretches, place_of
from tuimon.trace.gaps import CpuWait, Gap
from tuimon.trace.gpu import Gpu
from tuimon.trace.nesting import Nesting

#: A line is all of a row from this share of its time on.
_ALL = 0.95
#: A line with less of a row's time does not stand for it: it was called from many, or sampled too seldom.
_STANDS_FOR = 1 / 3


class _Sum(Struct):
    count: int = 0
    total_ns: int = 0
    gpu_ns: int = 0
    amount: int = 0
    threads: int = 0
    longest_ns: int = 0
    phases: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lines: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # of the user's code: ns there

    def add(self, length_ns: int, phase: str, line: str = "") -> None:
        """Add one more, in a phase and at a line of the user's code."""
        self.count += 1
        self.total_ns += length_ns
        self.longest_ns = max(self.longest_ns, length_ns)
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


class KernelRow(Struct, frozen=True):
    """A kernel, all its runs."""

    name: str
    phase: str  # in which it was launched
    count: int
    total_ns: int
    blocks: int  # of a run, in the mean; 0: unknown
    threads: int  # of a block, in the mean; 0: unknown


class CopyRow(Struct, frozen=True):
    """Copies of one kind. ``pinned``: whether the memory of the host is; None where no host is involved."""

    kind: str  # "host to GPU", "GPU to host", "on the GPU", "GPU to GPU", "memset"
    pinned: bool | None
    phase: str
    count: int
    total_ns: int
    total_bytes: int


class LaunchRow(Struct, frozen=True):
    """Kernels by how long they ran."""

    name: str  # "below 5 us"
    count: int
    total_ns: int
    small: int  # of these, with fewer blocks than the GPU has multiprocessors


class WaitRow(Struct, frozen=True):
    """Waits of the GPU, all gaps of one cause."""

    cause: str
    what: str
    phase: str
    where: str  # the user's function; "" where it is not known
    count: int
    total_ns: int
    longest_ns: int


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


def kernel_rows(events: Events, phases: Stretches, gpus: Iterable[Gpu]) -> list[KernelRow]:
    """All kernels that were launched in the steps."""
    sums: dict[int, _Sum] = defaultdict(_Sum)
    for gpu in gpus:
        for i in gpu.works:
            if events.kind[i] == Kind.KERNEL:
                found = sums[events.name[i]]
                found.add(events.length_ns(i), phases.name_at(gpu.called_ns(events, i)))
                found.amount += events.amount[i]
                found.threads += events.threads[i]
    rows = [
        KernelRow(events.names[n], s.phase, s.count, s.total_ns, s.amount // s.count, s.threads // s.count)
        for n, s in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def copy_rows(events: Events, phases: Stretches, gpus: Iterable[Gpu]) -> list[CopyRow]:
    """All copies and memsets that were launched in the steps, by kind and by whether the host's memory is pinned."""
    sums: dict[tuple[str, bool | None], _Sum] = defaultdict(_Sum)
    for gpu in gpus:
        for i in gpu.works:
            if events.kind[i] != Kind.KERNEL:
                found = sums[_copy_kind(events.kind[i], events.name_of(i))]
                found.add(events.length_ns(i), phases.name_at(gpu.called_ns(events, i)))
                found.amount += events.amount[i]
    rows = [CopyRow(*kind, s.phase, s.count, s.total_ns, s.amount) for kind, s in sums.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.kind))


#: Upper bounds of the rows of launches, in us: below 5 a launch takes longer than the kernel.
_LENGTHS_US = (5, 20, 100, 1000)


def launch_rows(events: Events, gpus: Iterable[Gpu]) -> list[LaunchRow]:
    """The kernels that were launched in the steps by their length; none where there are no kernels."""
    names = [f"below {limit} µs" for limit in _LENGTHS_US] + [f"from {_LENGTHS_US[-1]} µs"]
    counts, totals, small = ([0] * len(names) for _ in range(3))
    for gpu in gpus:
        for i in gpu.works:
            if events.kind[i] == Kind.KERNEL:
                length_us = events.length_ns(i) / 1000
                row = sum(length_us >= limit for limit in _LENGTHS_US)
                counts[row] += 1
                totals[row] += events.length_ns(i)
                small[row] += 0 < events.amount[i] < gpu.multiprocessors
    return [LaunchRow(*row) for row in zip(names, counts, totals, small, strict=True)] if any(counts) else []


def wait_rows(events: Events, gaps: Iterable[Gap], lines: Stretches) -> list[WaitRow]:
    """The gaps by cause, what it is of, and the user's function; ``lines``: where the training thread was."""
    sums: dict[tuple[str, str, str], _Sum] = defaultdict(_Sum)
    for gap in gaps:
        found = sums[gap.cause, gap.what if gap.cause != "start" else "", _where(events, gap.python)]
        found.add(gap.length_ns, gap.phase, lines.name_at((gap.begin_ns + gap.end_ns) // 2))
    rows = [
        WaitRow(c, what, s.phase, where or s.where, s.count, s.total_ns, s.longest_ns)
        for (c, what, where), s in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.total_ns, row.cause, row.what))


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


def _copy_kind(kind: int, name: str) -> tuple[str, bool | None]:
    """``Memcpy HtoD (Pageable -> Device)``: host to GPU, not pinned. HIP and CUDA name copies alike."""
    if kind == Kind.MEMSET:
        return "memset", None
    for short, long in (("HtoD", "host to GPU"), ("DtoH", "GPU to host")):
        if short in name:
            return long, True if "Pinned" in name else False if "Pageable" in name else None
    return ("GPU to GPU" if "PtoP" in name else "on the GPU" if "DtoD" in name else "other"), None
