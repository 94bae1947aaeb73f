"""``tuimon doctor`` and ``tuimon ps`` on this very machine."""

import json
import os
import sys

import pytest

from tests.cli.command import tuimon
from tuimon.agent.ring import files
from tuimon.agent.ring.writer import RingWriter
from tuimon.cli import trainings
from tuimon.cli.commands import doctor
from tuimon.cli.commands.doctor import Check
from tuimon.installation import install_command
from tuimon.launch import attached
from tuimon.launch.attached import Candidate, find_candidates
from tuimon.proc.ring_facts import RingFacts
from tuimon.sources.markers.source import refused_folders


def test_doctor_tells_what_works(tmp_path):
    done = tuimon("doctor", "--format", "json", cwd=tmp_path)
    report = json.loads(done.stdout)
    found = {check["name"]: check for check in report["checks"]}
    assert {"tuimon", "python", "py-spy", "ptrace", "shared memory", "output", "nvml", "terminal"} <= found.keys()
    assert all(check["status"] in ("ok", "warn", "fail") for check in found.values())
    assert all(check["fix"] for check in found.values() if check["status"] == "fail")
    assert found["tuimon"]["status"] == "ok"
    essential_failures = [c for c in found.values() if c["status"] == "fail" and c["essential"]]
    assert done.returncode == (1 if essential_failures else 0)


def test_doctor_says_how_to_fix(monkeypatch, call):
    broken = Check("py-spy", "fail", "not found", "pip install py-spy", essential=True)
    monkeypatch.setattr(doctor, "all_checks", lambda: [broken])
    assert call("doctor", code=1).out.splitlines() == ["FAIL  py-spy  not found", "              -> pip install py-spy"]


def test_a_ring_folder_that_others_can_write_to(monkeypatch, tmp_path):
    (tmp_path / "squatted").mkdir()
    (tmp_path / "squatted").chmod(0o777)
    places = [str(tmp_path / "squatted")]
    monkeypatch.setattr(files, "ring_directories", lambda: places)
    assert doctor.shared_memory().status == "fail"
    (notice,) = refused_folders(1.0)
    assert notice.message == f"other users may write to {places[0]} (mode 777): there are no markers"
    places.append(str(tmp_path / "ours"))
    assert doctor.shared_memory().status == "warn"
    (notice,) = refused_folders(1.0)
    assert notice.message.endswith(f": rings are in {tmp_path}/ours instead")


def test_ps_lists_a_training(tmp_path, monkeypatch, call):
    """This process looks like one, were it not tuimon itself."""
    own = os.getpid()
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path))
    writer = RingWriter(str(tmp_path / f"{own}-{files.start_ticks(own)}.ring"))
    writer.set_meta({"run": "r", "rank": 3, "gpu_uuids": ["GPU-1"], "pid": "not a number"})
    monkeypatch.setattr("tuimon.launch.attached.os.getpid", lambda: -1)
    (row,) = [row for row in trainings.rows(find_candidates()) if row.pid == own]
    assert (row.rank, row.gpus, row.markers, row.run) == (3, ["GPU-1"], True, "r")
    assert row.cpu_ratio is not None and row.age_s is not None and row.age_s > 0
    assert (row.folder, row.steps_per_s) == (os.getcwd(), None)
    assert any(entry["pid"] == own and entry["markers"] for entry in json.loads(call("ps", "--format", "json").out))


def test_ps_shows_names_as_text():
    candidate = Candidate(os.getpid(), 1, 0, [sys.executable, "\x1b[31m[bold]\n"], None)
    lines = trainings.trainings_table(trainings.rows([candidate]))
    assert len(lines) == 2
    assert "[bold]" in lines[1]
    assert "\x1b" not in lines[1]
    assert "no" in lines[1].split()


def listed(pid, steps_per_s, has_stepped, run=None):
    folder = "/data/projects/" + "x" * 20 + "/run7"
    markers = has_stepped is not None
    return trainings.ListedProcess(
        pid, "me", 0, [], 0.5, 4000.0, steps_per_s, has_stepped, markers, folder, run, ["train.py"]
    )


def test_ps_shows_age_rate_and_the_end_of_a_long_folder():
    head, line = trainings.trainings_table([listed(1, 14.9, True)])
    assert head.split() == ["PID", "USER", "RANK", "GPUS", "CPU", "AGE", "STEPS/S", "MARKERS", "FOLDER", "COMMAND"]
    folder = "…" + "x" * 18 + "/run7"
    assert line.split() == ["1", "me", "0", *["–", "50", "%", "1h06m", "14.9", "yes"], folder, "train.py"]


def test_ps_lists_the_runs_that_make_steps_first_and_leaves_their_helpers_out():
    launcher, slow, fast = listed(1, None, False, "a"), listed(2, 1.0, True, "a"), listed(3, 9.0, True, "a")
    starting, other = listed(4, None, False, "b"), listed(5, 2.0, True, "c")
    halted, unknown = listed(6, None, True, "d"), listed(7, None, None)
    found = trainings.sorted_by_steps([launcher, slow, fast, starting, other, halted, unknown])
    assert found == [slow, fast, other, halted, launcher, starting, unknown]
    assert trainings.helpers(found) == {1}
    shown, everything = (
        [line.split()[0] for line in trainings.trainings_table(found, everything=each)[1:]] for each in (False, True)
    )
    assert shown == ["2", "3", "5", "6", "4", "7", "1"]  # the last one is their number
    assert everything == ["2", "3", "5", "6", "1", "4", "7"]
    assert "--all" in trainings.trainings_table(found)[-1]


def test_ps_lists_what_has_markers_first_and_what_has_only_imported_torch_after_it(monkeypatch):
    made = [Candidate(pid, 1, 100 - pid, [str(pid)], RingFacts() if pid in (5, 6) else None) for pid in (5, 6, 7, 8)]
    known = {candidate.pid: candidate for candidate in made}
    monkeypatch.setattr(attached.procfs, "pids", lambda: list(known))
    monkeypatch.setattr(attached, "candidate_of", lambda pid, _: known[pid])
    assert [candidate.pid for candidate in find_candidates()] == [6, 5, 8, 7]


def test_a_py_spy_that_is_not_there(monkeypatch):
    monkeypatch.setattr("tuimon.sources.stacks.pyspy.find", lambda: None)
    found = doctor.py_spy()
    assert (found.status, found.essential, found.fix) == ("fail", True, install_command("py-spy"))


@pytest.mark.parametrize(("scope", "fix"), [(1, "ptrace_scope=0"), (2, "sudo"), (3, "reboot"), (None, "")])
def test_a_kernel_that_restricts_ptrace(scope, fix, monkeypatch):
    monkeypatch.setattr("tuimon.sources.stacks.failures.yama_scope", lambda: scope)
    monkeypatch.setattr(doctor, "read_fields", lambda path: {})  # no capabilities
    found = doctor.ptrace()
    assert found.status == ("warn" if scope else "ok") and fix in (found.fix or "")
