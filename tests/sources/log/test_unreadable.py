"""A log that the operating system does not let us read, or no further: cause and next step, and all others are read."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path

import pytest
from msgspec import structs

from bench.fleet_logs import Job
from bench.fleet_logs import write as write_fleet
from tests.sources.log.failing_disk import UNREADABLE, fail_in
from tests.sources.log.literal_log import HEADER, STEPS, write
from tuimon.errors import UnreadableLog
from tuimon.node_ids import node_of
from tuimon.records import Notice, Record, Steps
from tuimon.sources.log.joined import notices
from tuimon.sources.log.joined.opening import choose, choose_all, open_logs, read_logs
from tuimon.sources.log.reader import find_log, read_log


def long_log(path: Path) -> Path:
    return write(path, HEADER, *(structs.replace(STEPS, t=float(t), first_index=3 * t) for t in range(2, 400)))


def notices_of(records: list[Record], source: str) -> list[str]:
    return [record.message for record in records if isinstance(record, Notice) and record.source == source]


def test_a_log_whose_beginning_cannot_be_read() -> None:
    with pytest.raises(UnreadableLog) as refused:
        next(read_log(UNREADABLE))
    assert refused.value.message == "the log /proc/self/mem cannot be read: Input/output error"
    assert "dmesg" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE, errno.EISDIR])
def test_a_log_that_can_be_read_no_further(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = long_log(tmp_path / name)
    fail_in(monkeypatch, log, 600)
    with pytest.raises(UnreadableLog, match=f"the log {log} cannot be read: ") as refused:
        list(read_log(str(log)))
    assert refused.value.hint


class TestFolder:
    """Its other logs are read, and the one that cannot be is named."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        long_log(tmp_path / "a.jsonl")
        (tmp_path / "b.jsonl").symlink_to(UNREADABLE)
        (tmp_path / "c.jsonl").symlink_to("nothing")
        (tmp_path / "d.jsonl").mkdir()
        return tmp_path

    def test_the_latest_run_is_one_that_can_be_read(self, folder: Path) -> None:
        chosen = choose(str(folder))
        assert chosen.path == find_log(str(folder)) == f"{folder}/a.jsonl"
        records = list(read_logs(chosen))
        assert sum(isinstance(record, Steps) for record in records) == 398
        (told,) = notices_of(records, notices.UNREADABLE)
        assert f"the log {folder}/b.jsonl cannot be read: Input/output error" in told
        assert f"the log {folder}/c.jsonl cannot be read: No such file" in told and "d.jsonl" not in told
        opened = open_logs(str(folder))
        assert [notice.message for notice in opened.notices] == [told]
        opened.source.close()

    def test_all_runs_are_those_that_can_be_read(self, folder: Path) -> None:
        (chosen,) = choose_all(str(folder))
        assert chosen.path == f"{folder}/a.jsonl" and len(chosen.left_out) == 2

    def test_a_folder_that_cannot_be_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(_: str) -> list[str]:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(os, "listdir", fails)
        for look in (find_log, choose):
            with pytest.raises(UnreadableLog, match=f"the folder {folder} cannot be read: Permission") as refused:
                look(str(folder))
            assert refused.value.hint


@pytest.mark.parametrize(("after_bytes", "nodes"), [(0, {0, 1}), (100_000, {0, 1, 2})])
def test_of_a_run_on_several_nodes_the_others_are_read(
    after_bytes: int, nodes: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, second, _ = map(Path, write_fleet(str(tmp_path), Job(nodes=3, ranks=2, seconds=40.0, workers=1)))
    (tmp_path / "left.jsonl").symlink_to(UNREADABLE)
    chosen = choose(str(tmp_path))
    fail_in(monkeypatch, second, after_bytes)
    records = list(read_logs(chosen))
    windows = Counter(node_of(record.pid) for record in records if isinstance(record, Steps))
    assert set(windows) == nodes
    alone = sum(isinstance(record, Steps) for record in read_log(str(whole)))
    assert windows[0] == windows[max(nodes)] == alone
    assert not after_bytes or 0 < windows[1] < alone
    *_, told = notices_of(records, notices.UNREADABLE)
    assert f"{second} cannot be read: Input/output error" in told and "left.jsonl cannot be read" in told
