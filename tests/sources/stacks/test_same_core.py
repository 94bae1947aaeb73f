"""py-spy on the core of the thread that it samples."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.programs import running
from tests.waiting import until
from tuimon.proc import procfs
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.pyspy import recorder, same_core
from tuimon.sources.stacks.source import StackSource

SPINS = "print('up', flush=True)\nwhile True: pass"
SLEEPS = "import time; print('up', flush=True); time.sleep(600)"


def looks(monkeypatch: pytest.MonkeyPatch, runnable: Iterator[int | str], cores: int = 4) -> same_core.Cores:
    """After all these numbers of runnable threads, the one that looks included."""
    found = same_core.Cores(cores)
    for number in runnable:
        monkeypatch.setattr(procfs, "read_bytes", lambda *_, n=number: f"0.20 0.18 0.12 {n}/80 11206\n".encode())
        found.sample()
    return found


def test_cores_are_crowded_where_at_a_good_part_of_the_looks_none_was_free(monkeypatch):
    assert not looks(monkeypatch, iter([])).are_crowded
    assert not looks(monkeypatch, iter([1, 2, 3, 4] * 10)).are_crowded  # with the one that looks: three others at most
    assert not looks(monkeypatch, iter([5] + [2] * 9)).are_crowded
    assert looks(monkeypatch, iter([5, 9, 2, 2, 2] * 4 + [5])).are_crowded  # a pool at work, and one thread alone
    assert not looks(monkeypatch, iter([9] * 100 + [2] * 32)).are_crowded  # the latest ones count


def test_a_sampler_is_moved_to_the_core_of_the_thread_and_follows_it(tmp_path):
    here = sorted(os.sched_getaffinity(0))
    with running(folder(tmp_path, "a"), SPINS) as target, running(folder(tmp_path, "b"), SLEEPS) as sampler:
        for core in (here[0], here[-1], here[0]):
            os.sched_setaffinity(target.pid, {core})
            until(lambda core=core: _core(target.pid) == core, f"on core {core}")
            same_core.move(sampler.pid, target.pid)
            assert os.sched_getaffinity(sampler.pid) == {core}


@pytest.mark.skipif(recorder.find() is None, reason="py-spy is not installed")
@pytest.mark.parametrize("crowded", [True, False])
def test_windows_are_kept_there_while_no_core_is_free(monkeypatch, tmp_path, crowded):
    """Those of who holds the GIL as well."""
    here = os.sched_getaffinity(0)
    monkeypatch.setattr(same_core.Cores, "are_crowded", crowded)
    with running(tmp_path, SPINS) as target:
        core = min(here)
        os.sched_setaffinity(target.pid, {core})
        table = ProcessTable(target.pid, None)
        table.publish({target.pid: procfs.start_ticks(target.pid) or 0}, {target.pid: "trainer"})
        source = StackSource(table, max_cpu_ratio=1.0)
        try:
            until(lambda: list(source.read()), "a window has ended")
            seen: set[frozenset[int]] = set()
            until(lambda: _gil_runs(source, seen), "who holds the GIL is sampled")
        finally:
            source.close()
    assert seen == {frozenset({core} if crowded else here)}


def _gil_runs(source: StackSource, seen: set[frozenset[int]]) -> bool:
    """Reads the source; notes where its children may run."""
    list(source.read())
    recordings = [running.recording for running in source.running.values()]
    gil = source.gil.running
    for recording in (*recordings, *([gil] if gil else [])):
        for tid in procfs.thread_ids(recording.child):
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                seen.add(frozenset(os.sched_getaffinity(tid)))
    return gil is not None


def folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


def _core(pid: int) -> int | None:
    thread = procfs.read_thread_stat(pid, pid)
    return thread.core if thread else None
