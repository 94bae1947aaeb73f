"""``tuimon run --headless``: exit codes, signals and output are the target's own, with a GPU and without."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import textwrap

import pytest

from tests import fake_amdsmi
from tests.cli.command import LEAN, TUIMON, running, script, tuimon
from tests.fake_nvml import Scenario, modern, usual
from tests.sources.log.literal_log import HEADER, write
from tests.waiting import until
from tuimon.records import Exit, Gpu, Header, Process
from tuimon.sources.log.source import read_records

#: writes its pid, then what it hears
LISTENER = """
import os, signal, sys, time
heard = open("heard", "a", buffering=1)
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", file=heard))
heard.write(f"{os.getpid()}\\n")
try:
    while "SIGTERM" not in open("heard").read():
        time.sleep(0.02)
    raise SystemExit(21)
except KeyboardInterrupt:
    print("SIGINT", file=heard)
    raise SystemExit(22)
"""


def heard(folder):
    path = folder / "heard"
    return path.read_text().split() if path.exists() else []


def test_an_allocation_that_failed_is_named_without_reading_the_output(tmp_path):
    text = "import torch\nraise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0')\n"
    path = script(tmp_path, text)
    done = tuimon("run", "--headless", "--log", "x.jsonl", *LEAN, "--", sys.executable, path, cwd=tmp_path)
    own = " ".join(line.partition("] ")[2].strip() for line in done.stderr.splitlines() if "[tuimon" in line)
    assert "ended with exit code 1 at train.py:2: torch.OutOfMemoryError: CUDA out of memory." in own
    assert (
        "the training ended because a GPU had no memory left for 9.00 GiB: OutOfMemoryError - at `train.py:2` - fix: "
        in own
    )


def test_stdio_is_untouched(tmp_path):
    text = "import sys; sys.stdout.buffer.write(bytes(range(256))); print(sys.argv[1:], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-m", "tuimon", "run", *LEAN, sys.executable, script(tmp_path, text), "--lines", "-x"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == bytes(range(256))
    assert b"['--lines', '-x']\n" in done.stderr
    others = [line for line in done.stderr.splitlines() if not line.startswith(b"[tuimon")]
    assert others == [b"['--lines', '-x']"]
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_leave_the_exit_code_and_are_closed_for_the_training_too(closed, tmp_path):
    text = """
        import os, sys
        there = [number for number in range(3) if os.path.exists(f"/proc/self/fd/{number}")]
        print(there, file=open(sys.argv[1], "w"))
        raise SystemExit(5)
    """
    path = script(tmp_path, textwrap.dedent(text))
    for name, words in {"plain": (), "watched": (*TUIMON, "run", *LEAN, "--log", "l.jsonl", "--")}.items():
        line = f"exec {shlex.join([*words, sys.executable, path, name])} {closed}"
        shell, null = ["sh", "-c", line], subprocess.DEVNULL
        done = subprocess.run(shell, cwd=tmp_path, stdin=null, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 5 and "Traceback" not in done.stderr
    assert (tmp_path / "watched").read_text() == (tmp_path / "plain").read_text()
    assert any(isinstance(record, Exit) for record in read_records(str(tmp_path / "l.jsonl")))


def test_survivors_are_named(tmp_path):
    text = "import os, time\nif os.fork() == 0:\n os.setsid(); os.close(1); os.close(2); time.sleep(600)"
    done = tuimon("run", *LEAN, "--log", "l.jsonl", "--", sys.executable, script(tmp_path, text), cwd=tmp_path)
    end = next(record for record in read_records(str(tmp_path / "l.jsonl")) if isinstance(record, Exit))
    for pid in end.survivors:
        os.kill(pid, signal.SIGKILL)
    assert done.returncode == 0
    assert len(end.survivors) == 1
    assert f"still running: {end.survivors[0]}" in done.stderr


def test_a_log_that_cannot_be_written_or_is_an_earlier_one_stops_before_the_run(tmp_path):
    path = script(tmp_path, "open('ran', 'w')")
    earlier = write(tmp_path / "l.jsonl", HEADER)
    before = earlier.read_bytes()
    for log in ("no/such/folder/x.jsonl", "/dev/full", path, "l.jsonl"):
        done = tuimon("run", *LEAN, "--log", log, "--", sys.executable, path, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("tuimon: ")
        assert "Traceback" not in done.stderr
    assert "--force" in done.stderr
    tuimon("run", "--force", "--log", "l.jsonl", "--", no_program(tmp_path), cwd=tmp_path)
    assert earlier.read_bytes() == before and not (tmp_path / "ran").exists()
    again = ("run", "--force", *LEAN, "--log", "l.jsonl", "--", sys.executable, path)
    assert tuimon(*again, cwd=tmp_path).returncode == 0 and earlier.read_bytes() != before


def test_no_secret_of_a_command_line_is_in_the_log(tmp_path):
    path = script(tmp_path, "import time; time.sleep(1)")
    words = (path, "--api-key", "hush1", "--token=hush2", "db://me:hush3@host", "--password", "hush4" * 500)
    tuimon("run", *LEAN, "--log", "l.jsonl", "--", sys.executable, *words, cwd=tmp_path)
    text = (tmp_path / "l.jsonl").read_text()
    assert "hush" not in text
    header, *others = read_records(str(tmp_path / "l.jsonl"))
    command = [sys.executable, path, "--api-key", "***", "--token=***", "db://me:***@host", "--password", "***"]
    assert isinstance(header, Header)
    assert header.command == command
    assert any(isinstance(record, Process) and record.command == command for record in others)
    assert stat.S_IMODE((tmp_path / "l.jsonl").stat().st_mode) == 0o600


def no_program(folder):
    """A program that the system does not start."""
    program = folder / "x"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    return str(program)


def test_nothing_is_left_when_the_command_does_not_start(tmp_path):
    done = tuimon("run", "--log", "l.jsonl", no_program(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert "interpreter is missing" in done.stderr
    assert not (tmp_path / "l.jsonl").exists()


def two_gpus(directory):
    """One GPU that works, and one of another kind that has nothing to do."""
    directory.mkdir()
    scenario = Scenario(directory)
    scenario.set(devices=2, driver="580.65.06", **usual(0), **usual(1))
    scenario.set(modern(0), gpu1_util=0, gpu1_name="NVIDIA Display Card")
    return scenario


def gpu_records(log):
    """What a log holds of GPUs by now."""
    has_any = log.exists() and b"}\n" in log.read_bytes()
    return [record for record in read_records(str(log)) if isinstance(record, Gpu)] if has_any else []


def test_a_run_with_gpus(tmp_path):
    scenario, log = two_gpus(tmp_path / "fake"), tmp_path / "run.jsonl"
    env = {**os.environ, **scenario.environment, "CUDA_VISIBLE_DEVICES": "GPU-00000000"}
    path = script(tmp_path, "import os, time\nwhile not os.path.exists('enough'): time.sleep(0.02)")
    words = ("run", "--headless", "--no-stacks", "--interval", "0.3", "--log", str(log), "--", sys.executable, path)
    with running(*words, cwd=tmp_path, env=env) as process:
        until(lambda: sum(gpu.chosen and gpu.sm_ratio is not None for gpu in gpu_records(log)) >= 2)
        (tmp_path / "enough").touch()
        assert process.wait(60) == 0
    first, second = ([gpu for gpu in gpu_records(log) if gpu.index == index][-1] for index in range(2))
    assert (first.index, first.name, first.chosen) == (0, "NVIDIA Fake 80GB", True)
    assert (second.name, second.chosen, second.sm_ratio) == ("NVIDIA Display Card", False, None)


def doctor_says(environment, folder, name="nvml"):
    done = tuimon("doctor", "--format", "json", cwd=folder, env=environment)
    (check,) = (check for check in json.loads(done.stdout)["checks"] if check["name"] == name)
    return f"{check['status']}: {check['message']}"


def test_doctor_tells_what_the_gpus_tell(tmp_path):
    scenario = two_gpus(tmp_path / "fake")
    some = "ok: driver 580.65.06, 2 GPUs; for 1 of them SM, tensor and DRAM activity (Hopper and later have it)"
    assert doctor_says(scenario.environment, tmp_path) == some
    scenario.set({"devices": 1, "0.mig": 1, "0.mig.0.uuid": "MIG-1"})
    assert doctor_says(scenario.environment, tmp_path) == "ok: driver 580.65.06, 1 GPU; 1 MIG instance"
    scenario.set({"error.nvmlInitWithFlags": 18})
    assert "different versions" in doctor_says(scenario.environment, tmp_path)


def test_doctor_counts_amd_gpus(tmp_path):
    scenario = Scenario(tmp_path, installed=False)
    environment = {**scenario.environment, **fake_amdsmi.install(tmp_path)}
    scenario.set(fake_amdsmi.usual(0), amd_devices=1)
    assert doctor_says(environment, tmp_path, "amdsmi") == "ok: 1 AMD GPU (never tried on real hardware)"
    scenario.set({"error.amdsmi_init": 34})
    assert doctor_says(environment, tmp_path, "amdsmi") == "warn: the AMD driver is not loaded"
