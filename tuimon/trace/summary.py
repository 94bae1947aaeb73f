"""All that a trace shows, computed once, and its record for the log: the heaviest rows, few and short."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from tuimon.records import TracedFlops, TracedSync, TracedWork, TraceTaken
from tuimon.text import at, kernel_name, plain
from tuimon.threshold import NEARLY_ALL
from tuimon.trace.events import EventKind, Events, Stretches, TakenBy, TracedStretch, is_python_of_user, python_place
from tuimon.trace.products import Product
from tuimon.trace.reader import Trace, phases_of, traced_time

TimeRange = tuple[int, int]


class Intervals:
    """The time in which something runs, with overlaps merged."""

    def __init__(self, intervals: Iterable[TimeRange]) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in sorted(intervals):
            if end <= begin:
                continue
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def within_ns(self, begin_ns: int, end_ns: int) -> int:
        """How many ns of this time lie between two moments."""
        first = bisect_right(self._ends, begin_ns)
        last = bisect_left(self._begins, end_ns)
        pairs = zip(self._begins[first:last], self._ends[first:last], strict=True)
        return sum(min(end, end_ns) - max(begin, begin_ns) for begin, end in pairs)


#: The kernels of NCCL and RCCL.
_COLLECTIVE = re.compile(r"nccl", re.IGNORECASE)


class GpuTotals(NamedTuple):
    """The totals of one GPU over the steps."""

    device: int
    name: str
    span_ns: int  # from when its main stream reached the first step's beginning to when it reached the last one's end
    busy_ns: int  # in which any stream ran something
    computing_ns: int | None  # in which any ran something else than a collective; None without collectives
    kernels: int


class TracedGpu:
    """The work of one GPU. ``works``: events launched in the steps. ``main``: the stream with the most kernels.

    ``main`` is not the stream with the most time: collectives are few and wait long. ``launches``: calls by
    correlation.
    """

    def __init__(
        self, trace: Trace, device: int, works: list[int], launches: dict[int, int], whole: TracedStretch
    ) -> None:
        events = trace.events
        self.device = device
        self.name = trace.device_names.get(device, "")
        self.launches = launches
        self.works = [i for i in works if whole.begin_ns <= self.called_ns(events, i) < whole.end_ns]
        self.streams: dict[int, list[int]] = defaultdict(list)  # by track: its works
        kernels: dict[int, int] = defaultdict(int)
        for i in works:
            self.streams[events.track[i]].append(i)
            kernels[events.track[i]] += events.kind[i] == EventKind.KERNEL
        self.main = max(kernels, key=lambda track: kernels[track])
        self.busy = Intervals((events.begin_ns[i], events.end_ns[i]) for i in works)
        other = [i for i in works if not _COLLECTIVE.search(events.name_of(i))]
        self.computing = Intervals((events.begin_ns[i], events.end_ns[i]) for i in other) if other != works else None
        self._called = [self.called_ns(events, i) for i in self._main_works]
        ends: list[int] = []
        for i in self._main_works:
            ends.append(max([events.end_ns[i], *ends[-1:]]))
        self._ends = ends

    @property
    def _main_works(self) -> list[int]:
        return self.streams[self.main]

    def called_ns(self, events: Events, work: int) -> int:
        """When a work was launched; if the trace does not have the call, when the work began."""
        return events.begin_ns[self.launches.get(events.correlation[work], work)]

    def reached_ns(self, moment_ns: int) -> int:
        """When the main stream had done all that the CPU launched before a moment; never earlier than that moment."""
        before = bisect_left(self._called, moment_ns)
        return max(moment_ns, self._ends[before - 1]) if before else moment_ns

    def totals(self, events: Events, span: TracedStretch) -> GpuTotals:
        begin_ns, end_ns = self.reached_ns(span.begin_ns), self.reached_ns(span.end_ns)
        kernels = sum(events.kind[i] == EventKind.KERNEL for i in self.works)
        busy, other = self.busy.within_ns(begin_ns, end_ns), self.computing
        computing = other.within_ns(begin_ns, end_ns) if other is not None else None
        return GpuTotals(self.device, self.name, end_ns - begin_ns, busy, computing, kernels)


def gpus_of(trace: Trace, whole: TracedStretch) -> list[TracedGpu]:
    """The GPUs that worked, ordered by their number."""
    events = trace.events
    works: dict[int, list[int]] = defaultdict(list)
    launches: dict[int, int] = {}
    for i in range(len(events)):
        kind = events.kind[i]
        if kind >= EventKind.KERNEL:
            works[trace.devices[events.track[i]] or 0].append(i)
        elif kind == EventKind.RUNTIME and events.correlation[i]:
            launches[events.correlation[i]] = i
    return [TracedGpu(trace, device, works[device], launches, whole) for device in sorted(works)]


#: Most rows of each table, and characters of a name and of a path: a record then has at most 6 kB, most have 2.
_RECORD_ROWS = 8
_RECORD_SYNCS = 6
_NAME = 100
_PATH = 400
Row = TypeVar("Row", TracedWork, TracedSync)
#: Longest time of a copy from pageable memory on the CPU itself, for staging: 12 to 26 us were recorded.
_STAGING_NS = 20_000
_NONE = -1
#: Times are rounded: an event that ends at most this many ns after another may lie within it.
_ROUNDING_NS = 1000
#: Least share of a row's time for a line to stand for the row: else it has many callers, or too few samples.
_STANDS_FOR = 1 / 3
#: Parts of the names of kernels that multiply, in cuBLAS, CUTLASS, cuDNN, FlashAttention and torch.compile.
_MULTIPLY = ("gemm", "nvjet", "cutlass", "xmma", "scudnn", "winograd", "flash", "fmha", "sdpa", "triton_tem")


def flops_of(
    products: Iterable[Product], events: Events, span: TracedStretch, gpus: Sequence[TracedGpu]
) -> list[TracedFlops] | None:
    """The operations by kind and type, most first; None if some are unknown: no shapes, or kernels without operators.

    Such kernels come from CUDA graphs, torch.compile or other libraries.
    """
    outer: dict[int, list[Product]] = defaultdict(list)  # of each thread, the products that lie in no other
    within = (product for product in products if span.begin_ns <= product.begin_ns < span.end_ns)
    for product in sorted(within, key=lambda each: (each.begin_ns, -each.end_ns)):
        own = outer[product.track]
        if not own or product.begin_ns >= own[-1].end_ns:
            own.append(product)
    sums: Counter[tuple[str, str]] = Counter()
    for own in outer.values():
        for product in own:
            if product.flops is None:
                return None
            sums[product.kind, product.dtype] += product.flops
    if not sums or any(_multiplies_alone(events, gpu, outer) for gpu in gpus):
        return None
    return [TracedFlops(kind, dtype, flops) for (kind, dtype), flops in sums.most_common() if flops]


def _multiplies_alone(events: Events, gpu: TracedGpu, outer: dict[int, list[Product]]) -> bool:
    """True if a kernel that multiplies was launched by none of the operators."""
    begins = {track: [product.begin_ns for product in own] for track, own in outer.items()}
    for work in gpu.works:
        name = events.name_of(work).lower()
        if events.kind[work] != EventKind.KERNEL or not any(part in name for part in _MULTIPLY):
            continue
        launch = gpu.launches.get(events.correlation[work])
        if launch is None:
            return True
        track, moment_ns = events.track[launch], events.begin_ns[launch]
        at = bisect_right(begins.get(track, []), moment_ns) - 1
        if at < 0 or moment_ns >= outer[track][at].end_ns:
            return True
    return False


class _RowSum(Struct):
    count: int = 0
    total_ns: int = 0
    gpu_ns: int = 0
    lines: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # ns at each line of the user's code

    def add(self, length_ns: int, line: str = "") -> None:
        """Add one event, at a line of the user's code."""
        self.count += 1
        self.total_ns += length_ns
        self.lines[line] += length_ns

    @property
    def where(self) -> str:
        """The line with most of the time, ``main() train.py:44``, with its share unless nearly all; "" if unknown."""
        known = {line: ns for line, ns in self.lines.items() if line}
        line = max(known, key=lambda name: known[name], default="")
        share = self.lines[line] / (sum(self.lines.values()) or 1)
        if share < _STANDS_FOR:
            return ""
        return line if share >= NEARLY_ALL else f"{line} ({100 * share:.0f} %)"


def operator_rows(
    events: Events,
    nesting: Nesting,
    phases: Stretches,
    whole: TracedStretch,
    gpus: Sequence[TracedGpu],
    lines: Stretches,
) -> list[TracedWork]:
    """All operators that began in the steps, by phase; ``lines``: the training thread's lines over time."""
    sums: dict[tuple[int, str], _RowSum] = defaultdict(_RowSum)

    def key_of(operator: int) -> tuple[int, str]:
        return events.name[operator], phases.name_at(events.begin_ns[operator])

    for i in events.begun_in(whole):
        if events.kind[i] == EventKind.OPERATOR:
            line = lines.name_at((events.begin_ns[i] + events.end_ns[i]) // 2)
            sums[key_of(i)].add(nesting.self_ns[i], line)
    for gpu in gpus:
        for work in gpu.works:
            launch = gpu.launches.get(events.correlation[work])
            operator = nesting.operator[launch] if launch is not None else -1
            if operator >= 0 and (key := key_of(operator)) in sums:
                sums[key].gpu_ns += events.length_ns(work)
    rows = [
        TracedWork(events.names[n], phase, s.count, s.total_ns, s.gpu_ns if gpus else None, s.where)
        for (n, phase), s in sums.items()
    ]
    return sorted(rows, key=lambda row: (-max(row.total_ns, row.gpu_ns or 0), row.name, row.phase))


def kernel_rows(events: Events, phases: Stretches, gpus: Iterable[TracedGpu]) -> list[TracedWork]:
    """All kernels that were launched in the steps, by phase."""
    sums: dict[tuple[int, str], _RowSum] = defaultdict(_RowSum)
    for gpu in gpus:
        for i in gpu.works:
            if events.kind[i] == EventKind.KERNEL:
                sums[events.name[i], phases.name_at(gpu.called_ns(events, i))].add(events.length_ns(i))
    rows = [TracedWork(events.names[n], phase, s.count, s.total_ns) for (n, phase), s in sums.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.name, row.phase))


def sync_rows(
    events: Events, nesting: Nesting, phases: Stretches, waits: Iterable[CpuWait], lines: Stretches
) -> list[TracedSync]:
    """The CPU's waits by call, operator, phase and line; ``lines``: the training thread's lines over time."""
    sums: dict[tuple[str, str, str, str], _RowSum] = defaultdict(_RowSum)
    for wait in waits:
        i, operator = wait.call, nesting.operator[wait.call]
        place = python_place(events.name_of(nesting.python[i])) if nesting.python[i] >= 0 else None
        where = at(place) if place is not None else lines.name_at((events.begin_ns[i] + events.end_ns[i]) // 2)
        name, phase = events.name_of(operator) if operator >= 0 else "", phases.name_at(events.begin_ns[i])
        sums[events.name_of(i), name, phase, where].add(wait.waited_ns)
    rows = [TracedSync(*key, s.count, s.total_ns) for key, s in sums.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.call, row.operator, row.phase))


class Nesting:
    """The enclosing events of each event, on its thread; events are given by their indices, -1 for none.

    ``operator``: the innermost operator around an event. ``python``: the innermost function of the user's code around
    it, in traces with Python functions. ``self_ns``: the time of an operator without that of the operators in it.

    For example, on one thread::

        |----------- aten::linear (10 us) -----------|
          |-- aten::t (2) --|    |-- aten::addmm (6) --|
                                    | cudaLaunchKernel |

    The launch lies in ``aten::addmm``, which lies in ``aten::linear``, whose ``self_ns`` is 2 us.
    """

    def __init__(self, events: Events) -> None:
        count = len(events)
        self.operator = array("i", [_NONE]) * count
        self.python = array("i", [_NONE]) * count
        self.self_ns = array("q", [0]) * count
        self._is_user = [is_python_of_user(name) for name in events.names]
        stacks: dict[int, list[tuple[int, int, int]]] = {}  # of each track: end, operator and python of the open events
        for i in range(count):
            if events.kind[i] < EventKind.KERNEL:
                self._enter(events, i, stacks.setdefault(events.track[i], []))

    def _enter(self, events: Events, i: int, stack: list[tuple[int, int, int]]) -> None:
        begin_ns, end_ns = events.begin_ns[i], events.end_ns[i]
        while stack and (stack[-1][0] <= begin_ns or stack[-1][0] + _ROUNDING_NS < end_ns):
            stack.pop()
        _, operator, python = stack[-1] if stack else (0, _NONE, _NONE)
        self.operator[i], self.python[i] = operator, python
        kind = events.kind[i]
        if kind == EventKind.RUNTIME:
            return
        if kind == EventKind.OPERATOR:
            length_ns = end_ns - begin_ns
            self.self_ns[i] = length_ns
            if operator != _NONE:
                self.self_ns[operator] -= min(length_ns, self.self_ns[operator])
            operator = i
        elif self._is_user[events.name[i]]:
            python = i
        stack.append((end_ns, operator, python))


def is_sync(name: str) -> bool:
    """True if a runtime call waits until the GPU has done all queued work."""
    return "Synchronize" in name or name in ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream")


class CpuWait(NamedTuple):
    """A call in which the CPU waited."""

    call: int  # index of the event
    waited_ns: int


def cpu_waits(events: Events, nesting: Nesting, whole: TracedStretch) -> list[CpuWait]:
    """The waits that began in a stretch, on threads with operators: the training thread and backward's.

    A copy and the synchronisation after it in the same operator are one wait, under the copy: ``.cpu()`` makes both.
    """
    threads = {events.track[i] for i in range(len(events)) if events.kind[i] == EventKind.OPERATOR}
    found: list[CpuWait] = []
    latest: dict[int, int] = {}  # of each thread: the index in ``found`` of its latest wait
    for call, waited_ns in _calls(events, whole):
        track = events.track[call]
        if track not in threads:
            continue
        before = found[latest[track]] if track in latest else None
        ends_copy = before is not None and is_sync(events.name_of(call)) and not is_sync(events.name_of(before.call))
        if before is not None and ends_copy and nesting.operator[call] == nesting.operator[before.call] >= 0:
            found[latest[track]] = before._replace(waited_ns=before.waited_ns + waited_ns)
        else:
            latest[track] = len(found)
            found.append(CpuWait(call, waited_ns))
    return found


def _calls(events: Events, whole: TracedStretch) -> Iterator[tuple[int, int]]:
    """The calls of all threads that waited, each with the length of the wait in ns."""
    pageable = {
        events.correlation[i]: events.end_ns[i]
        for i in range(len(events))
        if events.kind[i] == EventKind.MEMCPY and events.correlation[i] and "Pageable" in events.name_of(i)
    }
    for i in events.begun_in(whole):
        if events.kind[i] != EventKind.RUNTIME:
            continue
        length_ns = events.length_ns(i)
        copied_ns = pageable.get(events.correlation[i])
        if is_sync(events.name_of(i)) or (copied_ns is not None and events.end_ns[i] >= copied_ns):
            yield i, length_ns
        elif copied_ns is not None and length_ns > _STAGING_NS:
            yield i, length_ns - _STAGING_NS


class Summary(NamedTuple):
    """The tables of a trace; all figures are sums over ``steps`` steps."""

    trace: Trace
    steps: int
    has_steps: bool  # False: the file has no steps, and all of it counts as one
    span_ns: int
    gpus: list[GpuTotals]
    operators: list[TracedWork]
    kernels: list[TracedWork]
    syncs: list[TracedSync]
    flops: list[TracedFlops] | None = None
    has_lines: bool = False  # True if the file has lines of the user's code


def summarize(trace: Trace) -> Summary:
    events, span, phases = trace.events, traced_time(trace), phases_of(trace)
    nesting = Nesting(events)
    gpus = gpus_of(trace, span)
    return Summary(
        trace,
        steps=len(trace.steps.all) or 1,
        has_steps=bool(trace.steps),
        span_ns=span.length_ns,
        gpus=[gpu.totals(events, span) for gpu in gpus],
        operators=operator_rows(events, nesting, phases, span, gpus, trace.lines),
        kernels=kernel_rows(events, phases, gpus),
        syncs=sync_rows(events, nesting, phases, cpu_waits(events, nesting, span), trace.lines),
        flops=None if trace.dropped or trace.ended_early else flops_of(trace.products, events, span, gpus),
        has_lines=bool(trace.lines) or EventKind.PYTHON in events.kind,
    )


def record_of(summary: Summary) -> TraceTaken:
    """The record of a trace that tuimon took; ``t`` is its end, and the first step's number is unknown."""
    taken = summary.trace.taken or TakenBy()
    operators, kernels = summary.operators[:_RECORD_ROWS], summary.kernels[:_RECORD_ROWS]
    syncs = summary.syncs[:_RECORD_SYNCS]
    rows = len(summary.operators) + len(summary.kernels) + len(summary.syncs)
    has_gpu, computing = bool(summary.gpus), [x for gpu in summary.gpus if (x := gpu.computing_ns) is not None]
    return TraceTaken(
        t=taken.end_s,
        pid=taken.pid,
        begin_s=taken.begin_s,
        end_s=taken.end_s,
        steps=taken.steps,
        wanted=taken.wanted,
        rank=taken.rank,
        file=plain(summary.trace.path)[-_PATH:],
        pause_ms=taken.stop_ms,
        step_ms_before=taken.step_ms,
        gpu_span_ns=sum(gpu.span_ns for gpu in summary.gpus) if has_gpu else None,
        gpu_busy_ns=sum(gpu.busy_ns for gpu in summary.gpus) if has_gpu else None,
        gpu_computing_ns=sum(computing) if has_gpu and len(computing) == len(summary.gpus) else None,
        operators=[_shortened(row) for row in operators],
        kernels=[_shortened(replace(row, name=kernel_name(row.name, _NAME))) for row in kernels],
        syncs=[_shortened(row) for row in syncs],
        flops=summary.flops[:_RECORD_ROWS] if summary.flops is not None else None,
        folded=rows - len(operators) - len(kernels) - len(syncs),
    )


def _shortened(row: Row) -> Row:
    texts = {name: plain(text) for name, text in asdict(row).items() if isinstance(text, str)}
    return replace(row, **{k: text if len(text) <= _NAME else f"{text[: _NAME - 1]}…" for k, text in texts.items()})
