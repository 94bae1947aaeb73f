"""The latest window that an agent has sampled, read while its process stands still."""

from __future__ import annotations

import os
import threading

from tuimon.agent.control.stack_windows import FrameWindow
from tuimon.agent.ring.side_files import STACKS, side_file, write_file
from tuimon.sources.stacks import in_process
from tuimon.sources.standstill.stacks import take_stacks


def test_it_stands_in_where_py_spy_cannot_read(tmp_path, monkeypatch):
    ring = str(tmp_path / "1-2.ring")
    monkeypatch.setattr(in_process, "ring_path", lambda pid: ring)
    window = FrameWindow()
    window.sample(-1)
    content = {**window.content(), "order": 1, "window": 1, "begin_ns": 100 * 10**9, "end_ns": 102 * 10**9, "cpu_ns": 1}
    assert take_stacks(None, [os.getpid()], 90.0)[os.getpid()].unknown  # no window
    write_file(side_file(ring, STACKS), content)
    found = take_stacks(None, [os.getpid()], 90.0)[os.getpid()]
    (mine,) = (thread for thread in found.threads if thread.tid == threading.get_native_id())
    assert mine.frames[-1].function == "sample" and found.unknown is None
    assert take_stacks(None, [os.getpid()], 101.5)[os.getpid()].threads == ()  # mostly from before


def test_a_damaged_window_is_none(tmp_path, monkeypatch):
    ring = str(tmp_path / "1-2.ring")
    monkeypatch.setattr(in_process, "ring_path", lambda pid: ring)
    for damage in (b"", b"{", b'{"order": 1}'):
        (tmp_path / os.path.basename(side_file(ring, STACKS))).write_bytes(damage)
        assert in_process.latest_samples(os.getpid(), 0.0) is None
