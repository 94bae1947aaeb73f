"""Samples which thread holds the GIL: short windows of ``py-spy record --gil``, which reads only that thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from tuimon.proc.target_files import TargetFiles
from tuimon.records import GIL_WINDOW_S, Gil, GilCount, GilFunction
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.stacks import pyspy
from tuimon.sources.stacks.speedscope import SampledThread

#: The rate of a window, which then has 30 samples.
RATE_HZ = 50
#: The first windows of a training: how many, the pause before each, as stacks come first, and how many times their
#: share of the budget they may spend, as a verdict on its first seconds rests on them. Later ones are less frequent.
_FIRST_WINDOWS = 4
_FIRST_PAUSE_S = 2.0
_FIRST_SHARES = 10.0
_SHORTEST_PAUSE_S = 5.0
#: How many threads and functions one record names, those that held the GIL most.
_THREADS = 16
_FUNCTIONS = 8
#: CPU seconds of a window before any is measured: a start of py-spy and 30 samples, on a 2-core machine.
_PRIOR_CPU_S = 0.025
#: Weight of the latest window in the running mean of their costs.
_NEWEST_WEIGHT = 0.3


class GilSampler:
    """Samples which thread holds the GIL: one window at a time, the training processes in rotation."""

    def __init__(self) -> None:
        self.running: pyspy.PySpyRecording | None = None
        self._due_s: float | None = None
        self._begun = 0  # windows, since the latest training began
        self._cost_s = _PRIOR_CPU_S
        self._last_pid = -1

    def poll(self, now_s: float, programs: Collection[str] = ()) -> tuple[float, Iterable[Gil]]:
        """CPU seconds of a window that has ended, and its record; nothing while it runs, no record if it failed.

        ``programs``: installed packages whose functions count as the user's.
        """
        ended = self.running.poll(now_s) if self.running else None
        if ended is None:
            return 0.0, ()
        self.running = None
        self._cost_s += _NEWEST_WEIGHT * (ended.cpu_s - self._cost_s)
        if ended.samples is None or ended.window_s <= 0:
            return ended.cpu_s, ()
        counts = [GilCount(thread.tid, thread.stacks.total()) for thread in ended.samples.threads]
        counts.sort(key=lambda thread: -thread.count)
        samples = max(round(RATE_HZ * ended.window_s), counts[0].count if counts else 0)
        threads = [thread for thread in counts if thread.count][:_THREADS]
        functions = _functions(ended.samples.threads, ProcessCode(TargetFiles(ended.pid), programs=programs))
        record = Gil(t=round(now_s, 3), pid=ended.pid, samples=samples, threads=threads, functions=functions)
        return ended.cpu_s, (record,)

    def begin_training(self, now_s: float) -> None:
        """Drop the open window, as a process begins to train: until now it has imported and set up."""
        self._begun = 0
        if self._due_s is not None:
            self._due_s = min(self._due_s, now_s + _FIRST_PAUSE_S)

    def begin_window(self, binary: str, trainers: Sequence[int], share_ratio: float, now_s: float) -> None:
        """Begin a window if one is due; ``share_ratio`` of a core may be spent. Raises OSError without py-spy."""
        if self._due_s is None:
            self._due_s = now_s + _FIRST_PAUSE_S
        if self.running or not trainers or now_s < self._due_s:
            return
        self._begun += 1
        affordable_s, shortest_s = self._cost_s / max(share_ratio, 1e-6), _SHORTEST_PAUSE_S
        if self._begun < _FIRST_WINDOWS:
            affordable_s, shortest_s = affordable_s / _FIRST_SHARES, _FIRST_PAUSE_S
        self._due_s = now_s + max(shortest_s, affordable_s)
        self._last_pid = next((pid for pid in trainers if pid > self._last_pid), trainers[0])
        self.running = pyspy.PySpyRecording.start(binary, self._last_pid, RATE_HZ, GIL_WINDOW_S, gil=True)

    def follow_thread(self) -> None:
        """Put the open window's py-spy on the core that the process's main thread is on now."""
        if self.running:
            self.running.follow_thread()

    def kill(self) -> float:
        """End the window, if there is one; the CPU seconds that it cost."""
        running, self.running = self.running, None
        return running.kill() if running else 0.0


def _functions(threads: Iterable[SampledThread], code: ProcessCode) -> list[GilFunction]:
    """The user's functions in or below which threads held the GIL, most samples first."""
    counts: Counter[tuple[int, str, str]] = Counter()
    for thread in threads:
        for stack, count in thread.stacks.items():
            frame = code.innermost(stack)
            if frame is not None:
                at = code.named(frame)
                counts[thread.tid, at.file, at.function] += count
    return [GilFunction(*key, count) for key, count in counts.most_common(_FUNCTIONS)]
