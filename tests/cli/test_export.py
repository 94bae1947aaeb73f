"""``tuimon export``: the command line in this process, from a log on disk."""

import contextlib
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

FORMATS = ("collapsed", "speedscope", "perfetto")


@pytest.fixture
def log(tmp_path):
    return write(tmp_path / "run.jsonl", LOG)


@pytest.fixture
def export(call):
    """Runs ``tuimon export``: it writes to stdout if all is well, and else to stderr."""

    def exported(*words, code=0):
        out, err = call("export", *words, code=code)
        assert (err if code == 0 else out) == ""
        return out or err

    return exported


def samples(lines):
    return sum(int(line.rpartition(" ")[2]) for line in lines.splitlines())


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        # a selection without a sample
        *((f"run.jsonl --to collapsed {each}", 2, ("nothing is selected", "backward"))
          for each in ("--phase bakward", "--role nobody", "--role worker --phase data", "--from 500")),
        # what a format cannot hold
        *((f"run.jsonl --to perfetto {each} main", 2, ("--to collapsed",)) for each in ("--phase", "--role")),
        *((f"run.jsonl --to {each}", 2, ("tuimon export --help lists the options",))
          for each in ("pdf", "perfetto --from x", "perfetto --until -1", "perfetto --from nan")),
        ("run.jsonl --to perfetto --from 3 --until 2", 2, ("lies after",)),
        # logs
        ("bare.jsonl --to speedscope", 1, ("holds no stack samples",)),
        *((f"gone.jsonl --to {each} -o out", 1, ("cannot be read: No such file",)) for each in FORMATS),
        *((f"text.jsonl --to {each} -o out", 1, ("tuimon",)) for each in FORMATS),
        # outputs
        ("run.jsonl --to perfetto -o no/such.json", 1, ("mkdir -p",)),
        ("run.jsonl --to perfetto -o .", 2, ("is a folder",)),
        ("run.jsonl --to perfetto -o pipe --force", 2, ("not a regular file",)),
        ("run.jsonl --to perfetto -o run.jsonl --force", 2, ("is a tuimon log",)),
    ],
)  # fmt: skip
def test_refusals_leave_every_file_as_it_is(words, code, says, log, tmp_path, monkeypatch, export):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "bare.jsonl", [record for record in LOG if not isinstance(record, Stacks)])
    (tmp_path / "text.jsonl").write_text("hello\n")
    os.mkfifo("pipe")  # a device of the machine would be at stake
    before = Path(log).read_bytes()
    said = export(*words.split(), code=code)
    assert all(each in said for each in says), said
    assert sorted(os.listdir()) == ["bare.jsonl", "pipe", "run.jsonl", "text.jsonl"]
    assert Path(log).read_bytes() == before


def test_a_stdout_that_cannot_be_written(log, monkeypatch, call):
    for words in (["export", log, "--to", "perfetto"], ["report", log]):
        with contextlib.suppress(OSError), open("/dev/full", "w") as full, monkeypatch.context() as patched:
            patched.setattr("sys.stdout", full)
            assert "stdout cannot be written: No space left" in call(*words, code=1).err


@pytest.mark.parametrize("words", [("export", "--to", "perfetto"), ("report",), ("report", "--format", "json")])
def test_a_file_that_is_there_stays_without_force(words, log, tmp_path, call):
    out = tmp_path / "out"
    out.write_text("the user's own")
    assert "--force" in call(*words, log, "-o", str(out), code=2).err
    assert out.read_text() == "the user's own"
    assert run_command_line([*words, log, "-o", str(out), "--force"]) == 0
    assert "step" in out.read_text()
    assert sorted(os.listdir(tmp_path)) == ["out", "run.jsonl"]


class TestRunOfSeveralNodes:
    """A folder of the logs of one run: all nodes are exported, and told apart."""

    JOB = Job(nodes=3, ranks=2, seconds=14.0, workers=1, late=3)

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory):
        folder = str(tmp_path_factory.mktemp("logs"))
        fleet_logs.write(folder, self.JOB)
        return folder

    def test_perfetto_has_a_process_a_rank(self, folder, export):
        events = json.loads(export(folder, "--to", "perfetto"))["traceEvents"]
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

    def test_stacks_of_all_ranks(self, folder, export):
        logs = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        each = [samples(export(log, "--to", "collapsed")) for log in logs]
        assert samples(export(folder, "--to", "collapsed")) == sum(each)
        file = json.loads(export(folder, "--to", "speedscope"))
        speedscope_schema.check(file)
        names = [profile["name"] for profile in file["profiles"]]
        assert any(name.startswith("rank 5 on node002: main (") for name in names)
        assert len(set(names)) == len(names)

    def test_a_run_is_chosen_by_name(self, folder, export):
        whole = export(folder, "--to", "perfetto")
        assert export(folder, "--run", self.JOB.name, "--to", "perfetto") == whole
        assert "holds no run 'other'" in export(folder, "--run", "other", "--to", "perfetto", code=1)
