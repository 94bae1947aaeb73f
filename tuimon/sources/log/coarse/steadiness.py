"""Whether a run goes on as it has: then its windows need not be as fine."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Hashable

from tuimon.records import Exit, Gpu, Header, Notice, Process, Record, Standstill, Steps, TorchMemory
from tuimon.sources.log.coarse.merging import SPAN_S

#: How long a run must have gone on as it did: the requirement's ten minutes.
STEADY_AFTER_S = 600.0
#: A step time is new if it is longer or shorter than all of that time by this factor: our choice; a training whose
#: neighbours come and go stays within it.
_STEP_FACTOR = 1.25
#: A phase's share of the step is new if beyond all of that time by this much: our choice, half of what a verdict needs.
_SHARE_MARGIN = 0.1
#: A time without a step is new if longer than all of that time by this factor, and by some seconds.
_SILENT_FACTOR, _SILENT_S = 2.0, 3.0
#: How long the latest values are kept out of the past they are compared with: three times what the sums are over.
_LATEST_S = 30.0
#: The past that is compared with: the last ten minutes, in so many blocks.
_PAST_S = 600.0
_BLOCKS = 10
#: Most things that are remembered as known, the latest.
_KNOWN = 1000


class _Extremes:
    """The least and the greatest value of the last while, without the latest: a slope is compared with what it left."""

    __slots__ = ("_blocks", "_latest")

    def __init__(self) -> None:
        # packed: 64 ranks have some five hundred of them
        self._blocks = array("d")  # of each its begin, least and greatest value
        self._latest = array("d")  # not in a block yet: time and value

    def is_new(self, t: float, value: float, factor: float, margin: float = 0.0) -> bool:
        """Whether a value lies beyond all before by so much; add it."""
        latest, blocks = self._latest, self._blocks
        latest.extend((t, value))
        while latest[0] <= t - _LATEST_S:
            self._age(latest[0], latest[1])
            del latest[:2]
        if not blocks:
            return False
        return value > max(blocks[2::3]) * factor + margin or value < min(blocks[1::3]) / factor - margin

    def _age(self, t: float, value: float) -> None:
        blocks = self._blocks
        if blocks and t < blocks[-3] + _PAST_S / _BLOCKS:
            blocks[-2], blocks[-1] = min(blocks[-2], value), max(blocks[-1], value)
        else:
            blocks.extend((t, value, value))
            del blocks[: -3 * (_BLOCKS + 1)]


class _Steps:
    """The steps of one process: what is compared are sums over as much time as a merged record is of."""

    def __init__(self) -> None:
        self._latest: list[tuple[float, array[float]]] = []  # when they ended; steps, their ns, and those of ``_sums``
        self._count = self._total_ns = 0.0  # these three: of the latest
        self._sums: dict[str, float] = {}
        self._mean_ns = _Extremes()
        self._silent_s = _Extremes()
        self._shares: dict[str, _Extremes] = {}
        self._last_step_s: float | None = None
        self._begun_s: float | None = None  # when shares were compared first

    def add_window(self, record: Steps) -> bool:
        """Add a window; whether its steps take a different time than before, or divide it differently."""
        sums = dict.fromkeys(self._sums, 0.0)
        for phase in record.phases:
            sums[phase.name] = sums.get(phase.name, 0.0) + phase.total_ns
        row = array("d", (record.usual, record.total_ns, *sums.values()))
        for name in sums:
            self._sums.setdefault(name, 0.0)
        self._latest.append((record.t, row))
        self._take(row, 1)
        while self._latest[0][0] <= record.t - SPAN_S:
            self._take(self._latest.pop(0)[1], -1)
        before_s = self._last_step_s
        if record.count:
            self._last_step_s = record.t
        silent_s = record.t - before_s if before_s is not None else 0.0
        changed = self._silent_s.is_new(record.t, silent_s, _SILENT_FACTOR, _SILENT_S)
        if not self._count or self._latest[0][0] > record.t - SPAN_S / 2:  # too little to compare
            return changed
        changed = self._mean_ns.is_new(record.t, self._total_ns / self._count, _STEP_FACTOR) or changed
        for name, phase_ns in self._sums.items():
            if name not in self._shares:
                self._shares[name] = extremes = _Extremes()
                if self._begun_s is not None:  # it had no share before
                    extremes.is_new(self._begun_s, 0.0, 1.0)
            extremes = self._shares[name]
            changed = extremes.is_new(record.t, phase_ns / max(self._total_ns, 1), 1.0, _SHARE_MARGIN) or changed
        self._begun_s = record.t if self._begun_s is None else self._begun_s
        return changed

    def _take(self, row: array[float], sign: int) -> None:
        """Add a window to the latest, or take it away."""
        steps, total_ns, *sums = row
        self._count += sign * steps
        self._total_ns += sign * total_ns
        for name, phase_ns in zip(self._sums, sums, strict=False):  # phases that have come since have no place in it
            self._sums[name] += sign * phase_ns


class Steadiness:
    """Watches the records of a run for anything that is new."""

    def __init__(self, after_s: float | None = None) -> None:
        """``after_s``: how long nothing must be new; ten minutes."""
        self._after_s = STEADY_AFTER_S if after_s is None else after_s
        self._since_s: float | None = None
        self._steps: defaultdict[int, _Steps] = defaultdict(_Steps)
        self._ended: dict[int, None] = {}  # processes, the latest last: the last records of one come after its end
        self._known: dict[Hashable, None] = {}
        self._notices: dict[str, tuple[str, str]] = {}
        self._memory: dict[tuple[int, int], tuple[int | None, int | None]] = {}

    def is_steady(self, t: float) -> bool:
        """Whether nothing has been new for long enough."""
        return self._since_s is not None and t - self._since_s >= self._after_s

    def note_change(self, t: float) -> None:
        """Something is new that no record shows."""
        self._since_s = t

    def add_record(self, record: Record) -> bool:
        """Whether a record shows something new."""
        changed = self._is_new(record)
        if changed or self._since_s is None:
            self._since_s = record.t
        return changed

    def _is_new(self, record: Record) -> bool:
        match record:
            case Header() | Exit() | Standstill():
                return True
            case Steps() | TorchMemory() if record.pid in self._ended:
                return False
            case Steps():
                if record.pid not in self._steps and len(self._steps) >= _KNOWN:
                    del self._steps[next(iter(self._steps))]
                return self._steps[record.pid].add_window(record)
            case Process():
                return self._is_new_process(record)
            case Notice():
                latest = record.level, record.message
                before, self._notices[record.source] = self._notices.get(record.source), latest
                return before != latest
            case Gpu():
                throttle = self._is_unknown(("throttle", record.uuid, *sorted(record.throttle)))
                errors = self._is_unknown(("errors", record.uuid, record.ecc_errors))
                return bool(record.xids) or throttle or errors
            case TorchMemory():
                key, counts = (record.pid, record.device), (record.alloc_retries, record.ooms)
                known, self._memory[key] = self._memory.get(key, counts), counts
                return known != counts
            case _:
                return False

    def _is_new_process(self, record: Process) -> bool:
        """Trainers always; workers of each epoch, and programs that are called again and again, only at first."""
        self._ended.pop(record.pid, None)
        if record.ended:
            self._ended[record.pid] = None
            while len(self._ended) > _KNOWN:
                del self._ended[next(iter(self._ended))]
            self._steps.pop(record.pid, None)
            self._memory = {key: counts for key, counts in self._memory.items() if key[0] != record.pid}
        if record.role == "trainer":
            return True
        command = () if record.role == "worker" else tuple(record.command)
        return self._is_unknown((record.role, record.ppid if record.role == "worker" else 0, record.ended, command))

    def _is_unknown(self, key: Hashable) -> bool:
        unknown = key not in self._known
        self._known.pop(key, None)
        self._known[key] = None
        while len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]
        return unknown
