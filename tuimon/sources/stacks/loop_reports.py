"""Where training processes say that their loops call backward and their optimizers, told with their samples."""

from __future__ import annotations

from collections.abc import Collection

from tuimon.proc.loop_stacks import LoopStack as ReportedStack
from tuimon.proc.target_files import TargetFiles
from tuimon.records import LoopStack
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.frame_ids import FrameIds, RawFrame, bare_name
from tuimon.sources.stacks.shorten import shorten
from tuimon.sources.stacks.window_schedule import ProcessKey


class LoopReports:
    """The stacks of the loops' boundaries, shortened as samples are; each is reported once."""

    def __init__(self, table: ProcessTable, ids: FrameIds) -> None:
        self._table = table
        self._ids = ids
        self._reported: dict[ProcessKey, tuple[ReportedStack, ...]] = {}

    def due(self, key: ProcessKey, files: TargetFiles) -> list[LoopStack]:
        """What the next record of this process is to say; call once for each."""
        facts = self._table.facts.get(key[0])
        if facts is None or self._reported.get(key, ()) == facts.loop:
            return []
        self._reported[key] = facts.loop
        return [LoopStack(boundary, self._short_ids(frames, files)) for boundary, frames in facts.loop]

    def forget_others(self, wanted: Collection[ProcessKey]) -> None:
        """Drop what was reported of processes that are not among these."""
        for key in self._reported.keys() - set(wanted):
            del self._reported[key]

    def _short_ids(self, frames: tuple[tuple[str, int, str], ...], files: TargetFiles) -> list[int]:
        stack = [RawFrame(file, line, bare_name(function)) for file, line, function in frames]
        return [self._ids.id_of(frame, files) for frame in shorten(stack, self._ids)]
