"""The stacks of many processes at once: by py-spy, or from what their agents have sampled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from tuimon.sources.stacks.frames.frame_ids import RawFrame, bare_name
from tuimon.sources.stacks.in_process import latest_samples
from tuimon.sources.stacks.pyspy import dump, errors

if TYPE_CHECKING:
    from concurrent.futures import Future

#: How many dumps run at a time, and how long one may take (s). A dump takes 0.05 to 0.1 s of a core.
_AT_ONCE = 8
_DUMP_S = 4.0
#: All stacks must be there after so long (s), or are reported as unknown: 500 processes take 6 s on 8 cores.
ALL_S = 8.0
#: Threads of one process that are read.
_THREADS = 200


class ThreadStack(Struct, frozen=True, gc=False):
    """The place of a thread; ``frames`` root first."""

    tid: int
    frames: tuple[RawFrame, ...]


class ProcessStacks(Struct, frozen=True, gc=False):
    """The Python threads of a process, or why they are not known."""

    threads: tuple[ThreadStack, ...] = ()
    unknown: str | None = None


def take_stacks(
    binary: str | None,
    pids: Iterable[int],
    since_s: float,
    take: Callable[[str, int, float], list[dump.DumpThread]] = dump.dump,
) -> Mapping[int, ProcessStacks]:
    """The stacks of these processes, the first ones first; ``since_s``: what agents sampled before does not count."""
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait  # noqa: PLC0415  (0.4 MB, seldom needed)

    until_s = time.monotonic() + ALL_S
    pool = ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1), "tuimon-dump")
    open_: dict[Future[ProcessStacks], int] = {
        pool.submit(_stacks_of, binary, pid, since_s, take, until_s): pid for pid in pids
    }
    found: dict[int, ProcessStacks] = {}
    while open_ and time.monotonic() < until_s:
        done, _ = wait(open_, max(until_s - time.monotonic(), 0.0), FIRST_COMPLETED)
        found.update({open_.pop(future): future.result() for future in done})
    pool.shutdown(wait=False, cancel_futures=True)
    late = ProcessStacks(unknown="there was no time: too many processes, or a busy machine")
    return found | dict.fromkeys(open_.values(), late)


def _stacks_of(
    binary: str | None,
    pid: int,
    since_s: float,
    take: Callable[[str, int, float], list[dump.DumpThread]],
    until_s: float,
) -> ProcessStacks:
    if time.monotonic() >= until_s:
        return ProcessStacks(unknown="there was no time")
    if binary is None:
        unknown = errors.no_binary().message
    else:
        try:
            return ProcessStacks(_threads_of(take(binary, pid, _DUMP_S), pid))
        except dump.DumpError as error:
            unknown = errors.explain(str(error), pid).message
    samples = latest_samples(pid, since_s)
    if samples is None:
        return ProcessStacks(unknown=unknown.removeprefix("no stack samples: "))
    return ProcessStacks(
        tuple(ThreadStack(each.tid, each.stacks.most_common(1)[0][0]) for each in samples.threads if each.stacks)
    )


def _threads_of(threads: list[dump.DumpThread], pid: int) -> tuple[ThreadStack, ...]:
    found = []
    for thread in threads[:_THREADS]:
        tid = thread.tid or (pid if len(threads) == 1 else 0)
        frames = (RawFrame(f.file, max(f.line, 0), bare_name(f.function)) for f in reversed(thread.frames))
        found.append(ThreadStack(tid, tuple(frames)))
    return tuple(found)
