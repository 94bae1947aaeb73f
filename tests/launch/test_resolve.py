"""What the words after ``tuimon run`` and ``tuimon attach`` mean: a command, a place, a job, a process."""

import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tuimon.agent.ring import files
from tuimon.errors import LaunchError, UsageError
from tuimon.launch import attached
from tuimon.launch.attached import find_candidates, processes_of_run
from tuimon.launch.child import output_path, own_output, state_directory
from tuimon.launch.resolve import resolve, user_python
from tuimon.monitor.opening import Job, job_of
from tuimon.records import Notice
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.source import ProcessSource


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: programs that can be run and some that cannot, folders with a main and without."""
    monkeypatch.chdir(tmp_path)
    program(tmp_path / "executable.py", text="#!/no/such/python\n")
    program(tmp_path / "launch")
    program(tmp_path / "noexec", 0o644, "#!/usr/bin/env python3\n")
    program(tmp_path / "go.sh", 0o644)
    for name in ("train.py", "empty/notes", "single/only.py", "pkg/__main__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def program(path, mode=0o755, text="#!/bin/sh\n"):
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("words", ["train.py --lr 0.1", "./executable.py", "-m pkg.train --x", "pkg x"])
def test_a_script_module_or_folder_with_a_main_runs_under_the_users_python(words, folder):
    assert resolve(words.split()) == [user_python(), *words.split()]


@pytest.mark.parametrize("words", ["bash train.sh", "./launch x"])
def test_any_other_program_stays_as_it_is(words, folder):
    assert resolve(words.split()) == words.split()


def test_the_python_of_the_active_environment_comes_first(folder, monkeypatch):
    for name in ("python", "python3"):
        program(folder / name)
    monkeypatch.setenv("PATH", str(folder))
    assert user_python() == str(folder / "python")
    (folder / "python").unlink()
    assert user_python() == str(folder / "python3")
    (folder / "python3").unlink()
    assert user_python() == sys.executable


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ([], "nothing to run", "tuimon run train.py"),
        ([""], "nothing to run", "tuimon run train.py"),
        (["-m"], "the name of a module", "-m mypackage.train"),
        (["empty"], "is a directory without", "Name a script inside it"),
        (["single"], "is a directory without", "Did you mean single/only.py?"),
        (["trian.py"], "there is no script trian.py", "train.py"),
        (["train"], "there is no script or program train", "train.py"),
        (["nowhere/train.py"], "there is no script nowhere/train.py", "There is no folder nowhere either"),
        (["\x1b[31mtrain\x07.txt"], "there is no script or program train.txt", ""),
        (["./noexec"], "./noexec is not executable", "tuimon run python ./noexec"),
        (["./go.sh"], "./go.sh is not executable", "chmod +x ./go.sh"),
    ],
)
def test_what_cannot_be_run_has_a_next_step(folder, words, message, hint):
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        resolve(words)
    assert hint in (error.value.hint or "") and error.value.exit_code == 2


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_an_unreadable_script(folder):
    program(folder / "train.py", 0o000)
    with pytest.raises(UsageError, match="cannot be read"):
        resolve(["train.py"])


@pytest.fixture
def base(tmp_path, monkeypatch):
    """The state folder's base; and a temporary folder beside it."""
    (tmp_path / "state").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "state"


def test_any_other_file_is_none(base, tmp_path):
    path = Path(output_path("r1"))
    assert own_output(str(path), "r1", os.getuid()) is None  # not made yet
    path.touch(0o600)
    assert own_output(str(path), "r1", os.getuid()) == str(path)
    secret = tmp_path / "secret.out"
    secret.write_text("root's own")
    assert own_output(str(path), "r2", os.getuid()) is None  # of another run
    assert own_output(str(path), "r1", os.getuid() + 1) is None  # named by another user's process
    assert own_output(str(secret), "secret", os.getuid()) is None
    assert own_output(str(path.parent / "../../../secret.out"), "../../../secret", os.getuid()) is None
    assert own_output(None, None, os.getuid()) is None
    path.unlink()
    path.symlink_to(secret)
    assert own_output(str(path), "r1", os.getuid()) is None
    path.unlink()
    os.mkfifo(path)
    assert own_output(str(path), "r1", os.getuid()) is None


def test_folders_are_made_private_whatever_the_umask(base):
    before = os.umask(0)
    try:
        base.rmdir()
        folder = state_directory()
    finally:
        os.umask(before)
    assert folder == str(base / "tuimon" / "runs")
    modes = [stat.S_IMODE(os.stat(made).st_mode) for made in (base, base / "tuimon", folder)]
    assert modes == [0o700, 0o700, 0o700]


def test_a_folder_that_others_can_write_to_is_not_used(base, tmp_path):
    shared = base / "tuimon"
    shared.mkdir()
    shared.chmod(0o777)  # whoever writes here can put a folder of his in the place of ours
    fallback = tmp_path / "temporary" / f"tuimon-{os.getuid()}"
    assert state_directory() == str(fallback / "runs")
    fallback.chmod(0o777)
    with pytest.raises(LaunchError, match=r"other users may write to .*/tuimon .*; other users may write to .*tuimon-"):
        state_directory()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o777


TORCHRUN = ["torchrun", "--nnodes", "2", "--rdzv-id", "42", "--node_rank=1", "train.py"]


@pytest.mark.parametrize(
    ("environ", "command", "job"),
    [
        ({}, ["python", "train.py"], Job()),
        ({"SLURM_JOB_ID": "7", "SLURM_NODEID": "3"}, [], Job("slurm-7", 3)),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "0"}, [], Job("slurm-7.0")),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "SLURM_RESTART_COUNT": "2"}, [], Job("slurm-7.1-r2")),
        ({"PBS_JOBID": "9.server"}, [], Job("job-9.server")),
        ({"TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "1"}, [], Job(None, 1)),
        ({"TORCHELASTIC_RUN_ID": "abc"}, [], Job("rdzv-abc")),
        ({}, TORCHRUN, Job("rdzv-42", 1)),
        ({}, ["torchrun", "--rdzv_id=42"], Job("rdzv-42")),
        ({}, ["torchrun", "--rdzv-id"], Job()),
        ({"SLURM_JOB_ID": "7"}, TORCHRUN, Job("slurm-7", 1)),
        ({"SLURM_JOB_ID": "7", "SLURM_NODEID": "many"}, [], Job("slurm-7")),
    ],
)
def test_scheduler_and_launcher_name_a_job(environ, command, job):
    assert job_of(environ, command) == job


def test_the_users_name_comes_first():
    assert job_of({"SLURM_JOB_ID": "7"}, TORCHRUN, "mine") == Job("mine", 1)


ROOT = Path(__file__).resolve().parents[2]


def test_a_shortage_of_file_handles_hides_processes_and_fails_nothing(monkeypatch):
    def short(_pid):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(attached, "environment_of", short)
    assert processes_of_run("any") == []


def test_an_empty_proc_is_reported_and_the_run_goes_on_to_its_end():
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


def test_where_proc_shows_not_even_tuimon_that_is_said_once(monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda _path: [])
    monkeypatch.setattr(files, "start_ticks", _no_file)
    source = ProcessSource(ProcessTable(os.getpid(), "run"), 1.0)
    notices = [each for _ in range(3) for each in source.read() if isinstance(each, Notice)]
    assert [(each.source, each.level) for each in notices] == [("processes", "warning")]
    assert notices[0].hint is not None and "mount -t proc" in notices[0].hint
    assert find_candidates() == processes_of_run("run") == []


def _no_file(_pid):
    raise FileNotFoundError(2, "No such file or directory")
