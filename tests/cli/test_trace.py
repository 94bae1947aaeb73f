"""The command ``tuimon trace``."""

import os

import pytest
from msgspec import structs

from tests.sources.log.literal_log import HEADER, STEPS
from tests.sources.log.literal_log import write as write_log
from tests.trace.kineto_file import of_recording, write
from tuimon.records import Process


def test_a_trace_that_was_taken(tmp_path, call):
    path = write(tmp_path / "t.json.gz", of_recording("resnet50_nw0_a"))
    out = call("trace", path).out
    assert "idle 43 %" in out and "Kernels  time on the GPU a step" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["4194304"], 1, "there is no process 4194304"),
        (["1", "--steps", "0"], 2, "--steps: must be from 1 to 1000"),
        (["1", "--max-pause", "0"], 2, "--max-pause"),
        (["1", "-o", "missing/t.json.gz"], 1, "mkdir -p missing"),
        (["1", "-o", "."], 2, ". is a folder"),
        (["1", "-o", "-"], 2, "a trace is written to a file"),
        (["1", "-o", "taken.json.gz"], 2, "taken.json.gz exists"),
        (["1", "-o", "ended.jsonl", "--force"], 2, "ended.jsonl is a tuimon log"),
        (["1", "-o", "pipe", "--force"], 2, "pipe is not a regular file"),
        (["none.jsonl"], 1, "none.jsonl"),
        (["none.json.gz"], 1, "none.json.gz"),
        (["ended.jsonl"], 1, "has ended"),
        # the log that names the training: refused before that is given an order, and there is none at its pid
        *((["run.jsonl", "-o", "run.jsonl", *force], 2, "run.jsonl is a tuimon log") for force in ([], ["--force"])),
    ],
)
def test_refusals(words, code, message, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ended.jsonl").write_text(_ENDED)
    (tmp_path / "taken.json.gz").write_text("{}")
    trainer = Process(t=1.0, pid=4194304, ppid=1, start_unix_s=1e9, command=["train.py"], role="main", markers=True)
    log = write_log(tmp_path / "run.jsonl", HEADER, trainer, structs.replace(STEPS, pid=trainer.pid, backwards=1))
    before = log.read_bytes()
    os.mkfifo("pipe")  # a device of the machine would be at stake
    assert message in call("trace", *words, code=code).err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ended.jsonl", "pipe", "run.jsonl", "taken.json.gz"]
    assert (tmp_path / "ended.jsonl").read_text() == _ENDED and log.read_bytes() == before


_ENDED = """\
{"type":"header","t":1.0,"pid":5,"schema":1,"mode":"run","command":["a"],"host":"h","wall_unix_s":1.0,"interval_s":1.0,\
"cpu_count":2,"versions":{}}
{"type":"exit","t":9.0,"pid":5,"exit_code":0}
"""
