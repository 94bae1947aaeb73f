"""Processes that /proc does not show, or not to us: they are left out, and nothing fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuimon.agent.ring import paths
from tuimon.launch import candidates
from tuimon.launch.candidates import find_candidates, processes_of_run
from tuimon.records import Notice
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.source import ProcessSource

ROOT = Path(__file__).resolve().parents[2]


def test_the_processes_of_a_run_are_found_by_their_environment() -> None:
    env = {**os.environ, "TUIMON_RUN": "run-of-this-test"}
    ready = "import sys; print('ready', flush=True); sys.stdin.read()"
    each = [
        subprocess.Popen([sys.executable, "-c", ready], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for child in each:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    assert processes_of_run("run-of-this-test") == sorted(child.pid for child in each)
    for child in each:
        child.communicate()
    assert processes_of_run("run-of-this-test") == []


def test_a_shortage_of_file_handles_hides_processes_and_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(_pid: int) -> dict[str, str]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(candidates, "environment", short)
    assert processes_of_run("any") == []


def test_an_empty_proc_is_reported_and_the_run_goes_on_to_its_end() -> None:
    training = [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)"]
    words = [sys.executable, "-m", "tuimon", "run", "--headless", "--no-gpu", "--", *training]
    script = 'mount -t tmpfs none /proc && exec "$@"'
    hidden = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    if subprocess.run([*hidden, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no name space of mounts may be made here")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*hidden, *words], env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None and running.stderr is not None
        first = next((line for line in running.stderr if "processes:" in line), "")
        running.stdin.close()
        rest = running.stderr.read()
    assert "/proc shows no processes here" in first
    assert running.returncode == 3 and "ended with exit code 3" in rest and "no longer watching" not in rest


def test_where_proc_shows_not_even_tuimon_that_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda _path: [])
    monkeypatch.setattr(paths, "start_ticks", _no_file)
    source = ProcessSource(ProcessTable(os.getpid(), "run"), 1.0)
    notices = [each for _ in range(3) for each in source.read() if isinstance(each, Notice)]
    assert [(each.source, each.level) for each in notices] == [("processes", "warning")]
    assert notices[0].hint is not None and "mount -t proc" in notices[0].hint
    assert find_candidates() == processes_of_run("run") == []


def _no_file(_pid: int) -> int:
    raise FileNotFoundError(2, "No such file or directory")
