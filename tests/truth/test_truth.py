"""The runner: which cases it tries, what it keeps, ends and prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.truth import __main__ as command
from tests.truth.kind import head
from tests.truth.running import Failed, finished, has_begun, started, truth_of
from tests.waiting import alive, until


@pytest.mark.parametrize("name", command.KINDS)
def test_each_kind_has_a_table_and_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main([name, "--help"])
    assert "--keep" in capsys.readouterr().out
    assert head(command.KINDS[name].columns).strip()
    with pytest.raises(SystemExit):
        command.main([])
    assert f"  {name}" in capsys.readouterr().out


def test_a_command_that_fails_or_does_not_end_says_why() -> None:
    assert finished([sys.executable, "-c", "print('done')"]) == "done\n"
    with pytest.raises(Failed, match=r"exit code 3\s+broken"):
        finished([sys.executable, "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"])
    with pytest.raises(Failed, match=r"no end after 0\.2 s"):
        finished([sys.executable, "-c", "import time; time.sleep(600)"], 0.2)


#: Starts a child of its group and one of a session of its own; prints their process ids.
_PARENT = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
print(*[child.pid for child in children], flush=True)
time.sleep(600)
"""


def test_what_a_command_started_is_ended_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with started([sys.executable, "-c", _PARENT], log, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        of_group, by_log = map(int, process.stdout.readline().split())
        assert (os.getpgid(of_group), os.getpgid(by_log)) == (process.pid, by_log)
        ended = {"type": "process", "pid": os.getpid(), "ended": True}
        records = [{"type": "process", "pid": os.getpid()}, ended, {"type": "process", "pid": by_log}]
        log.write_text("".join(json.dumps(record) + "\n" for record in records) + '{"torn')
    for pid in (process.pid, of_group, by_log):
        until(lambda pid=pid: not alive(pid), f"the end of {pid}")


def test_what_a_program_tells_is_found_behind_its_progress_bar() -> None:
    bar = "  0%|          | 0/1000 [00:00<?, ?it/s]"
    assert has_begun(f"loading\n{bar}training\n") and not has_begun(f"loading\n{bar}\n")
    assert truth_of(f'{bar}{{"steps": 9, "step_ms": 2.0, "shares": {{}}}}\n').steps == 9
    with pytest.raises(Failed, match="no truth"):
        truth_of("loading\n")


# -- judgements
