"""The records that a window of stack samples becomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from tuimon.proc.target_files import TargetFiles
from tuimon.records import Frames, Record, Stacks
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.frames.frame_ids import FrameIds
from tuimon.sources.stacks.frames.shorten import WindowStacks
from tuimon.sources.stacks.loop_reports import LoopReports
from tuimon.sources.stacks.pyspy.output import WindowSamples
from tuimon.sources.stacks.pyspy.recorder import Ended
from tuimon.sources.stacks.schedule import ProcessKey
from tuimon.torch_code import is_worker_loop

#: How many parked threads one record names at most.
_PARKED_AT_ONCE = 64
#: Longest thread name in a record.
_THREAD_NAME_CHARS = 80


class WindowRecords:
    """Makes the records of all windows of a run; each frame is recorded once."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._ids = FrameIds()
        self._loops = LoopReports(table, self._ids)
        self._parked: dict[ProcessKey, set[int]] = {}  # threads that a record has named as parked

    def of_samples(
        self,
        ended: Ended,
        samples: WindowSamples,
        key: ProcessKey,
        files: TargetFiles,
        now_s: float,
        in_process: bool = False,
    ) -> Iterable[Record]:
        """The samples, after the frames that are new in them; ``in_process``: by the process's own agent."""
        main = next((thread.stacks for thread in samples.threads if thread.tid == ended.pid), Counter())
        window = WindowStacks(self._ids, files, self._loops.path_of(key, main, files))
        if self._loops.has_loop(key):
            self._table.see_training(ended.pid)
        elif any(is_worker_loop(frame.file, frame.function) for stack in main for frame in stack):
            self._table.see_loading(ended.pid)
        for thread in samples.threads:
            window.add_thread(thread.tid, thread.name[:_THREAD_NAME_CHARS], thread.stacks, matters=thread.matters)
        loop = self._loops.due(key, files)
        first, new = self._ids.pop_new_frames()
        if new:
            yield Frames(t=round(now_s, 3), pid=0, first=first, frames=new)
        yield Stacks(
            t=round(min(now_s, ended.until_s), 3),
            pid=ended.pid,
            window_s=round(ended.window_s, 3),
            samples=samples.instants,
            stacks=window.stacks,
            folded=window.folded,
            failed=ended.failed,
            cost_cpu_s=round(ended.cpu_s, 4),
            parked=self.newly_parked(key, window.parked, {thread.tid for thread in samples.threads}),
            cycles=samples.cycles,
            in_process=in_process,
            loop=loop,
        )

    def newly_parked(self, key: ProcessKey, parked: list[tuple[int, str]], live: set[int]) -> list[tuple[int, str]]:
        """The threads that no earlier record of this process has named, a few at a time; ``live``: all its threads."""
        named = self._parked.setdefault(key, set())
        named &= live
        new = [(tid, name) for tid, name in parked if tid not in named][:_PARKED_AT_ONCE]
        named.update(tid for tid, _ in new)
        return new

    def forget_others(self, wanted: Collection[ProcessKey]) -> None:
        """Drop what is held of processes that are no longer sampled."""
        for key in [key for key in self._parked if key not in wanted]:
            del self._parked[key]
        self._loops.forget_others(wanted)


def lost_window(ended: Ended, now_s: float) -> Stacks:
    """The record of a window without samples: py-spy failed, at this cost."""
    return Stacks(
        t=round(min(now_s, ended.until_s), 3),
        pid=ended.pid,
        window_s=round(ended.window_s, 3),
        samples=0,
        stacks=[],
        failed=ended.failed,
        cost_cpu_s=round(ended.cpu_s, 4),
        lost=True,
    )
