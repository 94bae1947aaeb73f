"""Stack samples: py-spy windows back to back on training processes, on their DataLoader workers in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tuimon.records import Frames, Notice, Record, Stacks
from tuimon.sources import procfs, pyspy, pyspy_errors
from tuimon.sources.frames import FrameNumbers
from tuimon.sources.sampling_budget import FASTEST_HZ, START_HZ, Allowance, CostModel, Plan, plan
from tuimon.sources.speedscope import Samples
from tuimon.sources.stack_fold import Fold
from tuimon.sources.targets import Targets
from tuimon.sources.trouble import Trouble

#: The first windows of a process, and of one that begins to train, are short: something shows early.
_FIRST_WINDOWS_S = (0.6, 2.0)
_POLL_S = 0.05
_LONGEST_SLEEP_S = 0.25
_WORKERS_AT_ONCE = 4
#: A failing process is tried again after this long, doubled each time.
_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
_LONGEST_PASSING_RETRY_S = 5.0
#: So often a passing trouble (a Python that has not started yet) is not worth a word.
_PATIENCE = 3


@dataclass(slots=True)
class _Failing:
    """A process that py-spy could not read."""

    trouble: Trouble
    times: int
    retry_s: float


class StackSource:
    """Samples the run's Python processes through py-spy within a CPU budget."""

    name = "stacks"

    def __init__(
        self,
        targets: Targets,
        rate_hz: float | None = None,
        max_cpu_ratio: float = 0.03,
        clock: Callable[[], float] = time.monotonic,
        binary: Callable[[], str | None] = pyspy.find,
    ) -> None:
        """``rate_hz``: never sample more often than this; the budget may ask for less."""
        self.period_s = _POLL_S
        self._targets = targets
        self._limit_hz = min(rate_hz or FASTEST_HZ, FASTEST_HZ)
        self._budget_ratio = max_cpu_ratio
        self._clock = clock
        self._find_binary = binary
        self._binary: str | None = None
        self._numbers = FrameNumbers()
        self._cost = CostModel()
        self._allowance = Allowance(max_cpu_ratio, clock())
        self._running: dict[int, pyspy.Recording] = {}
        self._failing: dict[tuple[int, int | None], _Failing] = {}
        self._windows: dict[tuple[int, int | None], int] = {}  # how many each process has had, since it trains
        self._training: frozenset[int] = frozenset()
        self._turn: list[int] = []  # workers, the one that has waited longest first
        self._said: Trouble | None = None
        self._boot_unix_s = procfs.boot_unix_s()

    def read(self) -> Iterable[Record]:
        """The windows that have ended; begins new ones."""
        now_s = self._clock()
        out: list[Record] = []
        for pid, recording in list(self._running.items()):
            ended = recording.poll(now_s)
            if ended is not None:
                del self._running[pid]
                out.extend(self._take(ended, now_s))
        self._begin(now_s)
        out.extend(self._notices(now_s))
        self.period_s = self._sleep_s(now_s)
        return out

    def close(self) -> None:
        """End all py-spy children."""
        for recording in self._running.values():
            self._targets.sampler_cpu_s += recording.kill()
        self._running.clear()

    # ---- windows that have ended

    def _take(self, ended: pyspy.Ended, now_s: float) -> Iterable[Record]:
        self._targets.sampler_cpu_s += ended.cpu_s
        self._allowance.spend(ended.cpu_s)
        key = self._key(ended.pid)
        if ended.samples is None or not ended.samples.instants:
            self._failed(ended, key, now_s)
            return
        self._failing.pop(key, None)
        self._cost.learn(ended.samples.instants, ended.cpu_s)
        yield from self._records(ended, ended.samples, now_s)

    def _records(self, ended: pyspy.Ended, samples: Samples, now_s: float) -> Iterable[Record]:
        fold = Fold(self._numbers, self._start_unix_s(ended.pid))
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
        )

    def _failed(self, ended: pyspy.Ended, key: tuple[int, int | None], now_s: float) -> None:
        if not self._targets.lives(*key):
            self._failing.pop(key, None)
            return
        self._windows.pop(key, None)
        before = self._failing.get(key)
        times = before.times + 1 if before else 1
        trouble = pyspy_errors.explain(ended.message, ended.pid)
        longest_s = _LONGEST_PASSING_RETRY_S if trouble.passing else _LONGEST_RETRY_S
        self._failing[key] = _Failing(trouble, times, now_s + min(_RETRY_S * 2.0 ** (times - 1), longest_s))

    # ---- windows to begin

    def _begin(self, now_s: float) -> None:
        self._notice_training(now_s)
        trainers, workers = self._wanted()
        self._forget({*trainers, *workers})
        if not (trainers or workers) or not self._have_binary(now_s):
            return
        at_once = min(len(workers), max(1, len(trainers)), _WORKERS_AT_ONCE)
        current = plan(self._cost, self._budget_ratio, len(trainers), at_once, self._limit_hz)
        for pid in trainers:
            self._start(pid, current.trainer_hz, current, now_s)
        busy = sum(pid in self._running for pid in workers)
        for pid in self._in_turn(workers):
            if busy >= at_once:
                break
            busy += self._start(pid, current.worker_hz, current, now_s)

    def _notice_training(self, now_s: float) -> None:
        """A process that begins to train: what was sampled until now (imports, set-up) is over, begin anew."""
        training = self._targets.trainers()
        for pid in training - self._training:
            self._windows.pop(self._key(pid), None)
            if pid in self._running:
                # a py-spy that has only just started would die of the SIGINT, without its file
                self._running[pid].due_s = max(now_s, self._running[pid].started_s + _FIRST_WINDOWS_S[0])
        self._training = training

    def _wanted(self) -> tuple[list[int], list[int]]:
        """Processes to sample all the time, and in turn."""
        roles = self._targets.roles
        trainers = set(self._targets.trainers()) | {pid for pid, role in roles.items() if role == "trainer"}
        workers = [pid for pid, role in roles.items() if role == "worker" and pid not in trainers]
        if not trainers and not workers:
            trainers = {pid for pid in roles or self._targets.pids() if _is_python(pid)}
        return sorted(trainers), workers

    def _in_turn(self, workers: list[int]) -> list[int]:
        self._turn = [pid for pid in self._turn if pid in workers]
        self._turn += [pid for pid in workers if pid not in self._turn]
        return [pid for pid in self._turn if pid not in self._running]

    def _start(self, pid: int, rate_hz: int, current: Plan, now_s: float) -> bool:
        key = self._key(pid)
        failing = self._failing.get(key)
        if pid in self._running or self._binary is None or (failing and now_s < failing.retry_s):
            return False
        if not self._allowance.open(now_s):
            return False
        window_s = current.window_s
        had = self._windows.get(key, 0)
        if had < len(_FIRST_WINDOWS_S):
            window_s = min(window_s, _FIRST_WINDOWS_S[had])
            rate_hz = max(rate_hz, int(min(START_HZ, self._limit_hz)), 1)
        try:
            self._running[pid] = pyspy.Recording.start(self._binary, pid, rate_hz, window_s)
        except OSError as error:
            trouble = Trouble(f"no stack samples: py-spy does not start: {error.strerror}")
            self._failing[key] = _Failing(trouble, 1, now_s + _LONGEST_RETRY_S)
            self._binary = None
            return False
        self._windows[key] = had + 1
        if pid in self._turn:
            self._turn.remove(pid)
            self._turn.append(pid)
        return True

    def _have_binary(self, now_s: float) -> bool:
        nowhere = (0, None)
        failing = self._failing.get(nowhere)
        if self._binary is None and (failing is None or now_s >= failing.retry_s):
            self._binary = self._find_binary()
            if self._binary is None:
                self._failing[nowhere] = _Failing(pyspy_errors.NO_BINARY, 1, now_s + _LONGEST_RETRY_S / 2)
            else:
                self._failing.pop(nowhere, None)
        return self._binary is not None

    def _key(self, pid: int) -> tuple[int, int | None]:
        return pid, self._targets.start_ticks(pid)

    def _forget(self, wanted: set[int]) -> None:
        """Let go of what was known of processes that are no more."""
        gone = [key for key in (*self._failing, *self._windows) if key[0] and not self._is_wanted(key, wanted)]
        for key in gone:
            self._failing.pop(key, None)
            self._windows.pop(key, None)

    def _is_wanted(self, key: tuple[int, int | None], wanted: set[int]) -> bool:
        return key[0] in wanted and key == self._key(key[0])

    def _start_unix_s(self, pid: int) -> float | None:
        ticks = self._targets.start_ticks(pid)
        return None if ticks is None else self._boot_unix_s + ticks / procfs.TICKS_PER_S

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
        stopping = any(now_s >= recording.due_s for recording in self._running.values())
        if stopping:
            return _POLL_S
        next_s = min((recording.due_s - now_s for recording in self._running.values()), default=_LONGEST_SLEEP_S)
        return min(max(next_s, 0.01), _LONGEST_SLEEP_S)


def _is_python(pid: int) -> bool:
    return procfs.executable(pid).startswith(("python", "pypy"))
