"""The runner and its kinds: which cases are tried and kept, their labels, short runs of some."""

import ast
import json
import os
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest

from tests.agent.programs import environment, printed_json
from tests.launch.injection.trainings import needs_gdb, writes_all_registers
from tests.truth import __main__ as command
from tests.truth.causes import CAUSES, Case, Causes, all_cases
from tests.truth.hang import odd_lines
from tests.truth.inject import SCRIPT, SHAPES, run_trial
from tests.truth.kind import head
from tests.truth.pair_results import GIVEN, result_fault
from tests.truth.pairs import LOGS, PROGRAMS, Pairs, Side, all_sides
from tests.truth.programs import labelled
from tests.truth.rank import CASES, PHASES, TRAINING, cause_lines
from tests.truth.running import Failed, finished, has_begun, started, truth_of
from tests.verdicts import accepted_reports
from tests.waiting import alive, until
from tests.warm_torch import WarmProgram, warm_python
from tuimon.diagnosis.explain.page import page_of
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.session.state import PARTS


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


def test_each_fault_that_hangs_by_its_own_code_marks_its_line() -> None:
    faults = ("file", "worker_file", "skip", "stop", "lock", "thread", "owner")
    assert all(len(odd_lines(fault)) == 1 for fault in faults) and not odd_lines("lost")


def test_every_kind_of_lateness_in_a_line_is_marked_there():
    ast.parse(TRAINING.read_text())
    assert all(cause_lines(kind) for kind, phase in PHASES.items() if phase is not None)
    assert {case.kind for case in CASES if case.late >= 0} | {"jitter"} == set(PHASES)
    assert len({case.name for case in CASES}) == len(CASES)


pytest.importorskip("torch")


@pytest.mark.torch
@needs_gdb
@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=[writes_all_registers] * (shape == "kernel")) for shape in SHAPES]
)
def test_none_is_harmed(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))

    def start(words: list[str], streams: list[int]) -> WarmProgram:
        return WarmProgram(words, environment(None), None, streams)

    trial = run_trial(shape, min(SHAPES[shape], 0.5), 2, 1, start)
    assert trial.faults == []
    assert len(trial.first_marker_s) == 2
    plain = warm_python(str(SCRIPT), "plain", str(trial.steps), env=environment(None))
    assert printed_json(plain)[trial.steps - 1] == trial.digest


#: Fewer would be no training.
_MIN_STEPS = 8


PAIRS = accepted_reports("pairs")


@pytest.mark.parametrize("side", all_sides(), ids=lambda side: side.name)
def test_the_rule_fires_before_and_not_after(side: Side) -> None:
    """As was accepted of its log."""
    assert Pairs().is_recorded(side), f"no log of this code: python -m tests.truth pairs --record {side.name}"
    report = PAIRS[side.name]
    if (side.rule, side.when) != ("hang", "before"):  # which may stand before its first step
        assert report.steps.total >= _MIN_STEPS
    assert not report.run.ended or report.run.exit_code == 0
    found = [each for each in report.findings if each.rule == side.rule and side.code.cause in (None, each.cause)]
    assert bool(found) == (side.when == "before")
    if found and side.code.language == "python":
        course = (PROGRAMS / "course.py").read_text()
        lines = {line.strip() for line in (side.program + course if side.is_recorded else side.text).splitlines()}
        assert {place.source.strip() for place in found[0].where if place.source} <= lines


@pytest.mark.parametrize("side", all_sides()[1::2], ids=lambda side: side.pair)
def test_the_code_after_computes_what_the_code_before_does(side: Side) -> None:
    assert result_fault(side) is None


def test_no_result_is_of_a_pair_that_is_gone() -> None:
    assert GIVEN.keys() == {side.pair for side in all_sides()}


def test_no_log_is_of_code_that_is_gone() -> None:
    assert sorted(set(LOGS.glob("*.gz")) - {side.log for side in all_sides() if side.is_recorded}) == []


def test_each_cause_of_a_wait_for_data_has_its_pair() -> None:
    page = page_of("input_bound")
    assert {code.cause for code in page.code} == set(page.causes)


CAUSE_CASES = list(all_cases())
QUICK = [case for case in CAUSE_CASES if case.evidence in ("simulated GPU", "H100 log")]


def test_each_cause_has_three_programs_with_a_twin() -> None:
    with_twin = Counter(case.category for case in CAUSE_CASES if case.evidence != "H100 log")
    assert {category: with_twin[category] for category in CAUSES if with_twin[category] < 3} == {}


def test_each_program_of_the_folder_has_a_cause_that_the_study_counts() -> None:
    programs = labelled(experiment="causes")
    assert {program.labels["category"] for program in programs.values()} <= CAUSES.keys()
    assert all(program.fixed for program in programs.values())
    assert {case.name for case in CAUSE_CASES} >= programs.keys()


@pytest.mark.parametrize("case", CAUSE_CASES, ids=lambda case: case.name)
def test_labels_are_names_that_a_report_can_have(case: Case) -> None:
    for rule, _, cause in (each.partition("/") for each in case.program.rules):
        if rule == "goodput":
            assert cause in PARTS
        elif rule not in ("no torch", "unseen"):
            assert cause in ("", *BY_NAME[rule].causes)


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_what_needs_a_gpu_is_told_by_name_and_not_without_its_cause(case: Case, tmp_path: Path) -> None:
    (row,) = Causes().judged(case, Namespace(folder=tmp_path, seconds=Causes.seconds))
    assert row.told and row.place_right in (True, None) and not row.false
    assert (row.false is None) == (case.evidence == "H100 log")
