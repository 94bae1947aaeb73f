"""Whether a run goes on as it has: then its windows need not be as fine."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable

from tuimon.records import Exit, Gpu, Header, Notice, Process, Record, Standstill, Steps, TorchMemory
from tuimon.sources.log.coarse.merging import SPAN_S

#: How long a run must have gone on as it did: the requirement's ten minutes.
STEADY_AFTER_S = 600.0
#: A step time is new that is longer than all of that time by this factor, or shorter: our choice; a training whose
#: neighbours come and go stays within it.
_STEP_FACTOR = 1.25
#: A phase's share of the step is new beyond all of that time by this much: our choice, half of what a verdict needs.
_SHARE_MARGIN = 0.1
#: A time without a step is new that is longer than all of that time by this factor, and by some seconds.
_SILENT_FACTOR, _SILENT_S = 2.0, 3.0
#: What is compared with the past is no part of it for so long: three times what the sums are over.
_LATEST_S = 30.0
#: What is compared with is of the last ten minutes, in so many blocks.
_PAST_S = 600.0
_BLOCKS = 10
#: Most things that are remembered as known, the latest.
_KNOWN = 1000


class _Extremes:
    """The least and the greatest value of the last while, without the latest: a slope is compared with what it left."""

    def __init__(self) -> None:
        # lists: an empty deque takes 0.7 kB, and 64 ranks have a thousand of them
        self._blocks: list[tuple[float, float, float]] = []  # begin, least, greatest
        self._latest: list[tuple[float, float]] = []  # not in a block yet

    def is_new(self, t: float, value: float, factor: float, margin: float = 0.0) -> bool:
        """Whether a value lies beyond all before by so much; add it."""
        self._latest.append((t, value))
        while self._latest[0][0] <= t - _LATEST_S:
            self._age(*self._latest.pop(0))
        if not self._blocks:
            return False
        least = min(block[1] for block in self._blocks)
        most = max(block[2] for block in self._blocks)
        return value > most * factor + margin or value < least / factor - margin

    def _age(self, t: float, value: float) -> None:
        if self._blocks and t < self._blocks[-1][0] + _PAST_S / _BLOCKS:
            begin_s, low, high = self._blocks[-1]
            self._blocks[-1] = begin_s, min(low, value), max(high, value)
        else:
            self._blocks.append((t, value, value))
            del self._blocks[: -_BLOCKS - 1]


class _Steps:
    """The steps of one process: what is compared are sums over as much time as a merged record is of."""

    def __init__(self) -> None:
        self._latest: deque[Steps] = deque()
        self._count = self._total_ns = 0  # these three: of the latest
        self._sums: Counter[str] = Counter()
        self._mean_ns = _Extremes()
        self._silent_s = _Extremes()
        self._shares: dict[str, _Extremes] = {}
        self._last_step_s: float | None = None
        self._begun_s: float | None = None  # when shares were compared first

    def add_window(self, record: Steps) -> bool:
        """Whether its steps take another time, or other parts of it, than they did."""
        self._take(record, 1)
        self._latest.append(record)
        while self._latest[0].t <= record.t - SPAN_S:
            self._take(self._latest.popleft(), -1)
        before_s = self._last_step_s
        if record.count:
            self._last_step_s = record.t
        silent_s = record.t - before_s if before_s is not None else 0.0
        changed = self._silent_s.is_new(record.t, silent_s, _SILENT_FACTOR, _SILENT_S)
        if not self._count or self._latest[0].t > record.t - SPAN_S / 2:  # too little to compare
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

    def _take(self, record: Steps, sign: int) -> None:
        """Add a window to the latest, or take it away."""
        self._count += sign * record.usual
        self._total_ns += sign * record.total_ns
        for phase in record.phases:
            self._sums[phase.name] += sign * phase.total_ns


class Steadiness:
    """Watches the records of a run for anything that is new."""

    def __init__(self, after_s: float | None = None) -> None:
        """``after_s``: how long nothing must be new; ten minutes."""
        self._after_s = STEADY_AFTER_S if after_s is None else after_s
        self._since_s: float | None = None
        self._steps: defaultdict[int, _Steps] = defaultdict(_Steps)
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
        if record.ended:
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
