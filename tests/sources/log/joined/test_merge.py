"""Records of several logs, merged in the order of their moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sources.log.literal_log import HEADER
from tuimon.records import Cost
from tuimon.sources.log.joined.identity import FrameIds
from tuimon.sources.log.joined.node_log import NodeLog
from tuimon.sources.log.joined.source import Merge
from tuimon.sources.log.writer import line_of


def append(path: Path, *moments: float) -> None:
    with path.open("ab") as file:
        for t in moments:
            file.write(line_of(Cost(t=t, pid=0, window_s=1.0, cpu_ratio=0.0, sampler_cpu_ratio=0.0, rss_bytes=1)))


@pytest.fixture
def merged(tmp_path: Path) -> Iterator[Callable[[list[float], list[float]], Merge]]:
    opened: list[NodeLog] = []

    def merge(*logs: list[float]) -> Merge:
        for number, moments in enumerate(logs):
            path = tmp_path / "ab"[number]
            path.write_bytes(line_of(HEADER))
            append(path, *moments)
            opened.append(NodeLog(str(path), number, path.name, FrameIds()))
        merge = Merge()
        merge.add_logs(opened)
        return merge

    yield merge
    for log in opened:
        log.close()


def read(merge: Merge) -> list[tuple[str, float]]:
    found = []
    merge.refill()
    while merged := merge.merge():
        for _, log, record in merged:
            log.pop()
            found.append((log.label, record.t))
    return [each for each in found if each[1] != HEADER.t]


def test_a_moment_of_several_logs_is_in_the_order_of_the_logs(merged: Callable[..., Merge]) -> None:
    merge = merged([2.0, 3.0, 3.0], [1.5, 3.0, 4.0])
    assert read(merge) == [("b", 1.5), ("a", 2.0), ("a", 3.0), ("a", 3.0), ("b", 3.0), ("b", 4.0)]


def test_a_log_keeps_its_order_though_a_record_is_dated_earlier_than_the_one_before(
    merged: Callable[..., Merge],
) -> None:
    merge = merged([2.0, 5.0, 3.0, 6.0], [2.5, 4.0, 5.5])
    assert read(merge) == [("a", 2.0), ("b", 2.5), ("b", 4.0), ("a", 5.0), ("a", 3.0), ("b", 5.5), ("a", 6.0)]
