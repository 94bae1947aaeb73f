"""``tuimon export``: the command line in this process, from a log on disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path

import pytest

from bench import fleet_logs
from bench.fleet_logs import Job
from tests.cli.test_diff import write
from tests.views.export import speedscope_schema
from tests.views.export.test_export import LOG
from tuimon.cli.main import run_command_line
from tuimon.records import Stacks


@pytest.fixture
def log(tmp_path: Path) -> str:
    return write(tmp_path / "run.jsonl", LOG)


def exported(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run_command_line(["export", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    assert run_command_line(["export", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    return err


def samples(lines: str) -> int:
    return sum(int(line.rpartition(" ")[2]) for line in lines.splitlines())


@pytest.mark.parametrize(
    "words", [("--phase", "bakward"), ("--role", "nobody"), ("--role", "worker", "--phase", "data"), ("--from", "500")]
)
def test_a_selection_without_a_sample_is_refused(
    words: tuple[str, ...], log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, log, "--to", "collapsed", *words, code=2)
    assert "nothing is selected" in said and "backward" in said


@pytest.mark.parametrize("option", ["--phase", "--role"])
def test_what_a_format_cannot_hold(log: str, capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert "--to collapsed" in refused(capsys, log, "--to", "perfetto", option, "main", code=2)


@pytest.mark.parametrize(
    "words",
    [
        ("--to", "pdf"),
        ("--to", "perfetto", "--from", "x"),
        ("--to", "perfetto", "--until", "-1"),
        ("--to", "perfetto", "--from", "nan"),
    ],
)
def test_usage(log: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert "tuimon export --help lists the options" in refused(capsys, log, *words, code=2)
    assert "lies after" in refused(capsys, log, "--to", "perfetto", "--from", "3", "--until", "2", code=2)


def test_a_log_without_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = write(tmp_path / "bare.jsonl", [record for record in LOG if not isinstance(record, Stacks)])
    assert "holds no stack samples" in refused(capsys, bare, "--to", "speedscope", code=1)


def test_logs_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    for to in ("collapsed", "speedscope", "perfetto"):
        said = refused(capsys, str(tmp_path / "gone.jsonl"), "--to", to, "-o", str(out), code=1)
        assert "cannot be read: No such file" in said
        text = tmp_path / "text.jsonl"
        text.write_text("hello\n")
        assert "tuimon" in refused(capsys, str(text), "--to", to, "-o", str(out), code=1)
    assert not out.exists()  # nothing is made of nothing


def test_outputs_that_cannot_be_written(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, log, "--to", "perfetto", "-o", str(tmp_path / "no" / "such.json"), code=1)
    assert "mkdir -p" in said
    assert "is a folder" in refused(capsys, log, "--to", "perfetto", "-o", str(tmp_path), code=2)
    os.mkfifo(tmp_path / "pipe")  # a device of the machine would be at stake
    assert "not a regular file" in refused(
        capsys, log, "--to", "perfetto", "-o", str(tmp_path / "pipe"), "--force", code=2
    )
    before = Path(log).read_bytes()
    assert "is a tuimon log" in refused(capsys, log, "--to", "perfetto", "-o", log, "--force", code=2)
    assert Path(log).read_bytes() == before


def test_a_stdout_that_cannot_be_written(
    log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["export", log, "--to", "perfetto"], ["report", log]):
        with contextlib.suppress(OSError), open("/dev/full", "w") as full, monkeypatch.context() as patched:
            patched.setattr("sys.stdout", full)
            assert run_command_line(words) == 1
        assert "stdout cannot be written: No space left" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("export", "--to", "perfetto"), ("report",), ("report", "--format", "json")])
def test_a_file_that_is_there_stays_without_force(
    words: tuple[str, ...], log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.write_text("the user's own")
    assert run_command_line([*words, log, "-o", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "the user's own"
    assert run_command_line([*words, log, "-o", str(out), "--force"]) == 0
    assert "step" in out.read_text()
    assert sorted(os.listdir(tmp_path)) == ["out", "run.jsonl"]


def test_a_full_disk_leaves_no_half_of_a_file(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tuimon.views.export.write_perfetto", fails)
    assert "No space left" in refused(capsys, log, "--to", "perfetto", "-o", str(tmp_path / "out"), code=1)
    assert os.listdir(tmp_path) == ["run.jsonl"]


class TestRunOfSeveralNodes:
    """A folder of the logs of one run: all nodes are exported, and told apart."""

    JOB = Job(nodes=3, ranks=2, seconds=14.0, workers=1, late=3)

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        folder = str(tmp_path_factory.mktemp("logs"))
        fleet_logs.write(folder, self.JOB)
        return folder

    def test_perfetto_has_a_process_a_rank(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        events = json.loads(exported(capsys, folder, "--to", "perfetto"))["traceEvents"]
        named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        assert max(named) < 1 << 32  # Perfetto reads no more of an id
        order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
        ranks = sorted(order, key=order.__getitem__)
        assert [named[pid].partition(": ")[0] for pid in ranks] == [
            f"rank {rank} on node00{rank // 2}" for rank in range(6)
        ]
        counted = {e["pid"] for e in events if e["name"] == "ms per step"}
        assert counted == set(ranks)
        assert len(named) == 3 * (1 + 2 * 2)  # of each node itself, its ranks and their workers

    def test_stacks_of_all_ranks(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        logs = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        each = [samples(exported(capsys, log, "--to", "collapsed")) for log in logs]
        assert samples(exported(capsys, folder, "--to", "collapsed")) == sum(each)
        file = json.loads(exported(capsys, folder, "--to", "speedscope"))
        speedscope_schema.check(file)
        names = [profile["name"] for profile in file["profiles"]]
        assert any(name.startswith("rank 5 on node002: main (") for name in names)
        assert len(set(names)) == len(names)

    def test_a_run_is_chosen_by_name(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        whole = exported(capsys, folder, "--to", "perfetto")
        assert exported(capsys, folder, "--run", self.JOB.name, "--to", "perfetto") == whole
        assert "holds no run 'other'" in refused(capsys, folder, "--run", "other", "--to", "perfetto", code=1)

    def test_none_of_its_logs_is_replaced(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        last = os.path.join(folder, sorted(os.listdir(folder))[-1])
        assert "is a tuimon log" in refused(capsys, folder, "--to", "perfetto", "-o", last, "--force", code=2)
