"""The command ``tuimon trace``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trace.kineto_file import of_recording, write
from tuimon.cli.main import run_command_line


def test_a_trace_that_was_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.json.gz", of_recording("resnet50_nw0_a"))
    assert run_command_line(["trace", path]) == 0
    out = capsys.readouterr().out
    assert "What the GPU waited for" in out and "for a batch" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["4194304"], 1, "there is no process 4194304"),
        (["1", "--steps", "0"], 2, "--steps must be from 1 to 1000"),
        (["1", "--max-pause", "0"], 2, "--max-pause"),
        (["1", "--all-ranks"], 2, "--all-ranks needs the log"),
        (["1", "-o", "missing/t.json.gz"], 1, "missing is no folder"),
        (["1", "-o", "."], 2, ". is a folder"),
        (["none.jsonl"], 1, "none.jsonl"),
        (["none.json.gz"], 1, "none.json.gz"),
        (["ended.jsonl"], 1, "has ended"),
    ],
)
def test_refusals(
    words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ended.jsonl").write_text(_ENDED)
    assert run_command_line(["trace", *words]) == code
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ended.jsonl"]


_ENDED = """\
{"type":"header","t":1.0,"pid":5,"schema":1,"mode":"run","command":["a"],"host":"h","wall_unix_s":1.0,"interval_s":1.0,\
"cpu_count":2,"versions":{}}
{"type":"exit","t":9.0,"pid":5,"exit_code":0}
"""
