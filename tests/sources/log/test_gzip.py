"""Logs that somebody has packed with gzip, to keep or to send."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.sources.log.long_log import begun, record_run
from tuimon.records import Notice
from tuimon.sources.log.reader import read_log


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    log = begun(tmp_path / "run.jsonl")
    record_run(log, 200)
    log.close()
    return Path(log.path)


def test_it_is_read_as_the_log_it_holds(plain: Path, tmp_path: Path) -> None:
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(read_log(str(packed))) == list(read_log(str(plain)))


def test_members_one_after_the_other_are_one_log(plain: Path, tmp_path: Path) -> None:
    lines = plain.read_bytes().splitlines(keepends=True)
    packed = tmp_path / "run.gz"
    packed.write_bytes(gzip.compress(b"".join(lines[:50])) + gzip.compress(b"".join(lines[50:])))
    assert list(read_log(str(packed))) == list(read_log(str(plain)))


def test_one_that_is_cut_off_is_read_as_far_as_it_goes(plain: Path, tmp_path: Path) -> None:
    whole = gzip.compress(plain.read_bytes())
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(whole[: len(whole) * 3 // 4])
    found, all_records = list(read_log(str(packed))), list(read_log(str(plain)))
    assert len(all_records) / 2 < len(found) < len(all_records)
    assert found == all_records[: len(found)]


def test_damage_within_is_said(plain: Path, tmp_path: Path) -> None:
    data = bytearray(gzip.compress(plain.read_bytes()))
    data[len(data) // 2 : len(data) // 2 + 50] = b"\xff" * 50
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(data)
    *_, notice = read_log(str(packed))
    assert isinstance(notice, Notice)
    assert "skipped: damaged" in notice.message
