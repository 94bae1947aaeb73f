"""Stack samples: py-spy windows back to back on training processes, on their DataLoader workers in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tuimon.proc import procfs
from tuimon.proc.pythons import is_python
from tuimon.records import Frames, Notice, Record, Stacks
from tuimon.sources.notices import Problem
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks import pyspy, pyspy_errors
from tuimon.sources.stacks.budget import FASTEST_HZ, Allowance
from tuimon.sources.stacks.frames import FrameNumbers
from tuimon.sources.stacks.gil import GilLooks
from tuimon.sources.stacks.schedule import FIRST_WINDOWS_S, Key, Turn, Turns
from tuimon.sources.stacks.shorten import Fold
from tuimon.sources.stacks.speedscope import Samples

_POLL_S = 0.05
_LONGEST_SLEEP_S = 0.25
#: A failing process is tried again after this long, doubled each time.
_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
_LONGEST_PASSING_RETRY_S = 5.0
#: So often a passing trouble (a Python that has not started yet) is not worth a word.
_PATIENCE = 3
_PARKED_AT_ONCE = 64
_NOWHERE: Key = (0, None)


@dataclass(slots=True)
class _Failing:
    """A process that py-spy could not read."""

    trouble: Problem
    times: int
    retry_s: float


@dataclass(slots=True)
class _Running:
    """A window that is being taken, and what was spent for it."""

    recording: pyspy.Recording
    key: Key
    cpu_s: float
    allowance: Allowance


class StackSource:
    """Samples the run's Python processes through py-spy within a CPU budget."""

    name = "stacks"

    def __init__(
        self,
        table: ProcessTable,
        rate_hz: float | None = None,
        max_cpu_ratio: float = 0.03,
        clock: Callable[[], float] = time.monotonic,
        binary: Callable[[], str | None] = pyspy.find,
    ) -> None:
        """``rate_hz``: never sample more often than this; the budget may ask for less."""
        self.period_s = _POLL_S
        self._table = table
        self._clock = clock
        self._find_binary = binary
        self._binary: str | None = None
        self._numbers = FrameNumbers()
        self._turns = Turns(max_cpu_ratio, min(rate_hz or FASTEST_HZ, FASTEST_HZ), clock())
        self._gil = GilLooks()
        self._running: dict[int, _Running] = {}
        self._ending: dict[int, _Running] = {}  # windows whose files are being written
        self._failing: dict[Key, _Failing] = {}
        self._parked: dict[Key, set[int]] = {}  # threads that were named as parked
        self._training: frozenset[int] = frozenset()
        self._said: Problem | None = None
        self._boot_unix_s = procfs.boot_unix_s()

    def read(self) -> Iterable[Record]:
        """The windows that have ended; begins new ones."""
        now_s = self._clock()
        out: list[Record] = []
        for pid, running in list(self._ending.items()):
            ended = running.recording.poll(now_s)
            if ended is not None:
                del self._ending[pid]
                out.extend(self._take(ended, running, now_s))
        for pid, running in list(self._running.items()):
            ended = running.recording.poll(now_s)
            if ended is not None:
                del self._running[pid]
                out.extend(self._take(ended, running, now_s))
            elif running.recording.stopping and pid not in self._ending:
                self._ending[pid] = self._running.pop(pid)  # the next window may begin while it writes its file
        gil_cpu_s, looks = self._gil.poll(now_s)
        self._table.sampler_cpu_s += gil_cpu_s
        out.extend(looks)
        self._begin(now_s)
        out.extend(self._notices(now_s))
        self.period_s = self._sleep_s(now_s)
        return out

    def close(self) -> None:
        """End all py-spy children."""
        self._table.sampler_cpu_s += self._gil.kill()
        for running in (*self._running.values(), *self._ending.values()):
            self._table.sampler_cpu_s += running.recording.kill()
        self._running.clear()
        self._ending.clear()

    # ---- windows that have ended

    def _take(self, ended: pyspy.Ended, running: _Running, now_s: float) -> Iterable[Record]:
        self._table.sampler_cpu_s += ended.cpu_s
        running.allowance.spend(ended.cpu_s - running.cpu_s)
        samples = ended.samples
        if samples is None or (ended.failed and not samples.instants):
            return self._failed(ended, running.key, now_s)
        self._failing.pop(running.key, None)
        self._turns.learn(running.key, samples.instants, ended.cpu_s)
        return self._records(ended, samples, running.key, now_s)

    def _records(self, ended: pyspy.Ended, samples: Samples, key: Key, now_s: float) -> Iterable[Record]:
        fold = Fold(self._numbers, self._start_unix_s(key))
        for thread in samples.threads:
            fold.add(thread.tid, thread.name[:80], thread.stacks, main=thread.tid == ended.pid)
        first, fresh = self._numbers.take_new()
        if fresh:
            yield Frames(t=round(now_s, 3), pid=0, first=first, frames=fresh)
        yield Stacks(
            t=round(now_s, 3),
            pid=ended.pid,
            window_s=round(ended.window_s, 3),
            rate_hz=round(samples.instants / ended.window_s, 1) if ended.window_s > 0 else 0.0,
            samples=samples.instants,
            stacks=fold.stacks,
            folded=fold.folded,
            failed=ended.failed,
            cost_cpu_s=round(ended.cpu_s, 4),
            parked=self._newly_parked(key, fold.parked),
            cycles=samples.cycles,
        )

    def _newly_parked(self, key: Key, parked: list[tuple[int, str]]) -> list[tuple[int, str]]:
        """Those that no earlier window of this process has named; a few at a time."""
        told = self._parked.setdefault(key, set())
        fresh = [(tid, name) for tid, name in parked if tid not in told][:_PARKED_AT_ONCE]
        told.update(tid for tid, _ in fresh)
        return fresh

    def _failed(self, ended: pyspy.Ended, key: Key, now_s: float) -> Iterable[Record]:
        if not self._table.is_alive(*key):
            self._failing.pop(key, None)
            return
        if not ended.interrupted:  # a py-spy that our SIGINT came too early for needs a longer window, not a short one
            self._turns.begin_anew(key)
        before = self._failing.get(key)
        times = before.times + 1 if before else 1
        trouble = pyspy_errors.explain(ended.message, ended.pid)
        longest_s = _LONGEST_PASSING_RETRY_S if trouble.passing else _LONGEST_RETRY_S
        self._failing[key] = _Failing(trouble, times, now_s + min(_RETRY_S * 2.0 ** (times - 1), longest_s))
        yield Stacks(
            t=round(now_s, 3),
            pid=ended.pid,
            window_s=round(ended.window_s, 3),
            rate_hz=0.0,
            samples=0,
            stacks=[],
            failed=ended.failed,
            cost_cpu_s=round(ended.cpu_s, 4),
            lost=True,
        )

    # ---- windows to begin

    def _begin(self, now_s: float) -> None:
        self._notice_training(now_s)
        trainers, workers = self._wanted()
        wanted = {*trainers, *workers}
        self._turns.forget(lambda key: not self._is_wanted(key, wanted))
        for key in [key for key in self._failing if key[0] and not self._is_wanted(key, wanted)]:
            del self._failing[key]
        for key in [key for key in self._parked if not self._is_wanted(key, wanted)]:
            del self._parked[key]
        if not wanted or not self._have_binary(now_s):
            return

        def failing(key: Key) -> bool:
            before = self._failing.get(key)
            return before is not None and now_s < before.retry_s

        for turn in self._turns.due(trainers, workers, self._key, self._running.keys(), now_s, failing):
            if not self._start(turn, now_s):
                return
        self._look_at_gil([pid for pid in trainers if self._key(pid) not in self._failing], now_s)

    def _start(self, turn: Turn, now_s: float) -> bool:
        pid = turn.key[0]
        if self._binary is None:
            return False
        try:
            recording = pyspy.Recording.start(self._binary, pid, turn.plan.rate_hz, turn.plan.window_s)
        except OSError as error:
            turn.allowance.spend(-turn.cpu_s)
            self._cannot_start(error, now_s)
            return False
        self._running[pid] = _Running(recording, turn.key, turn.cpu_s, turn.allowance)
        return True

    def _look_at_gil(self, trainers: list[int], now_s: float) -> None:
        if self._binary is None or not self._running:
            return
        try:
            self._gil.begin(self._binary, trainers, self._turns.gil_ratio, now_s)
        except OSError as error:
            self._cannot_start(error, now_s)

    def _cannot_start(self, error: OSError, now_s: float) -> None:
        trouble = Problem(f"no stack samples: py-spy does not start: {error.strerror}")
        self._failing[_NOWHERE] = _Failing(trouble, 1, now_s + _LONGEST_RETRY_S)
        self._binary = None

    def _notice_training(self, now_s: float) -> None:
        """A process that begins to train: what was sampled until now (imports, set-up) is over, begin anew."""
        training = self._table.trainers()
        for pid in training - self._training:
            self._turns.begin_anew(self._key(pid))
            if pid in self._running:
                # a py-spy that has only just started would die of the SIGINT, without its file
                recording = self._running[pid].recording
                recording.due_s = max(now_s, recording.started_s + FIRST_WINDOWS_S[0])
        self._training = training

    def _wanted(self) -> tuple[list[int], list[int]]:
        """Processes to sample all the time, the first rank first, and in turn."""
        roles = self._table.roles
        trainers = set(self._table.trainers()) | {pid for pid, role in roles.items() if role == "trainer"}
        workers = [pid for pid, role in roles.items() if role == "worker" and pid not in trainers]
        if not trainers and not workers:
            trainers = {pid for pid in roles or self._table.pids() if is_python(pid)}
        return sorted(trainers, key=self._rank), workers

    def _rank(self, pid: int) -> tuple[int, int]:
        facts = self._table.facts.get(pid)
        return (1 << 30 if facts is None or facts.rank is None else facts.rank, pid)

    def _have_binary(self, now_s: float) -> bool:
        failing = self._failing.get(_NOWHERE)
        if self._binary is None and (failing is None or now_s >= failing.retry_s):
            self._binary = self._find_binary()
            if self._binary is None:
                self._failing[_NOWHERE] = _Failing(pyspy_errors.NO_BINARY, 1, now_s + _LONGEST_RETRY_S / 2)
            else:
                self._failing.pop(_NOWHERE, None)
        return self._binary is not None

    def _key(self, pid: int) -> Key:
        return pid, self._table.start_ticks(pid)

    def _is_wanted(self, key: Key, wanted: set[int]) -> bool:
        return key[0] in wanted and key == self._key(key[0])

    def _start_unix_s(self, key: Key) -> float | None:
        return None if key[1] is None else self._boot_unix_s + key[1] / procfs.TICKS_PER_S

    # ---- what is said

    def _notices(self, now_s: float) -> Iterable[Record]:
        """A trouble when it is new, an "ok" when the last one is over."""
        worth_saying = [f.trouble for f in self._failing.values() if not f.trouble.passing or f.times >= _PATIENCE]
        trouble = worth_saying[0] if worth_saying else None
        if self._said in worth_saying or trouble == self._said:
            return
        self._said = trouble
        if trouble is None:
            yield Notice(t=now_s, pid=0, source=self.name, level="ok", message="stack samples are being taken")
        else:
            yield Notice(t=now_s, pid=0, source=self.name, level="warning", message=trouble.message, hint=trouble.hint)

    def _sleep_s(self, now_s: float) -> float:
        """Until the next window is due, at most a quarter second: a process may appear."""
        due = [running.recording.due_s - now_s for running in self._running.values()]
        next_s = min(due, default=_LONGEST_SLEEP_S)
        return _POLL_S if next_s <= 0 or self._ending else min(max(next_s, 0.01), _LONGEST_SLEEP_S)
