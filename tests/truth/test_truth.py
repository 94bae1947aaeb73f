"""The runner and its kinds: which cases are tried and kept, their labels, short runs of some."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent.programs import environment, printed_json
from tests.scenarios.streams import STREAMS, Stream, judged
from tests.truth import __main__ as command
from tests.truth import judging, running
from tests.truth.causes import CAUSES, Case, Causes, all_cases
from tests.truth.hang import ALONE, RANKS, alone_cases, odd_lines
from tests.truth.inject import SCRIPT, SHAPES, run_trial
from tests.truth.kind import head
from tests.truth.pair_results import GIVEN, result_fault
from tests.truth.pairs import LOGS, PROGRAMS, Judged, Pairs, Side, all_sides
from tests.truth.programs import TESTS, Program, labelled, tried, wild
from tests.truth.rank import CASES, PHASES, TRAINING, cause_lines
from tests.truth.running import Failed, finished, has_begun, started, truth_of
from tests.waiting import alive, until
from tests.warm_torch import WarmProgram, warm_python
from tuimon.diagnosis.explain.page import page_of
from tuimon.diagnosis.rulebook import BY_NAME, RULE_NAMES
from tuimon.diagnosis.rulebook import CAUSES as RULE_CAUSES
from tuimon.records import Exit, Steps
from tuimon.session.goodput import PARTS
from tuimon.sources.log.reader import read_log


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


def test_each_fault_that_hangs_by_its_own_code_marks_its_line():
    assert all(
        len(odd_lines(name, RANKS)) == 1 for name in ("file", "worker_file", "skip", "stop", "lock", "thread", "owner")
    )
    assert not odd_lines("lost", RANKS)
    cases = alone_cases()
    assert all(len(odd_lines(case.fault, ALONE)) == case.hangs for case in cases)
    assert all(f"\ndef {case.fault}(" in ALONE.read_text() for case in cases if case.fault != "stuck_worker")
    assert sum(case.hangs for case in cases) >= 12 and len({case.fault for case in cases}) == len(cases) >= 28


def test_every_kind_of_lateness_in_a_line_is_marked_there():
    ast.parse(TRAINING.read_text())
    assert all(cause_lines(kind) for kind, phase in PHASES.items() if phase is not None)
    assert {case.kind for case in CASES if case.late >= 0} | {"jitter"} == set(PHASES)
    assert len({case.name for case in CASES}) == len(CASES)


pytest.importorskip("torch")


def warm(words: list[str], streams: list[int]) -> WarmProgram:
    return WarmProgram(words, environment(None), None, streams)


@pytest.mark.torch
@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
@pytest.mark.parametrize("shape", SHAPES)
def test_none_is_harmed(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    trial, steps, digest = run_trial(shape, min(SHAPES[shape], 0.5), 2, 1, warm)
    assert trial.faults == []
    assert len(trial.first_marker_s) == 2
    plain = warm_python(str(SCRIPT), "plain", str(steps), env=environment(None))
    assert printed_json(plain)[steps - 1] == digest


#: Fewer would be no training.
_LEAST_STEPS = 8


@pytest.mark.parametrize("side", all_sides(), ids=lambda side: side.name)
def test_the_rule_fires_before_and_not_after(side: Side) -> None:
    assert Pairs().is_recorded(side), f"no log of this code: python -m tests.truth pairs --record {side.name}"
    records = list(side.records())
    if (side.rule, side.when) != ("hang", "before"):  # which may stand before its first step
        assert sum(record.count for record in records if isinstance(record, Steps)) >= _LEAST_STEPS
    assert all(record.exit_code == 0 for record in records if isinstance(record, Exit))
    found = Judged(side, side.finding(records), side.log if side.is_recorded else LOGS)
    assert found.is_right
    if found.finding is not None and side.code.language == "python":
        lines = {line.strip() for line in _code_of(side).splitlines()}
        assert {place.source.strip() for place in found.finding.where if place.source} <= lines


@pytest.mark.parametrize("side", all_sides()[1::2], ids=lambda side: side.pair)
def test_the_code_after_computes_what_the_code_before_does(side: Side) -> None:
    assert result_fault(side) is None


def test_no_result_is_of_a_pair_that_is_gone() -> None:
    assert GIVEN.keys() == {side.pair for side in all_sides()}


def _code_of(side: Side) -> str:
    """All code that a place may name."""
    return side.program + (PROGRAMS / "course.py").read_text() if side.is_recorded else side.text


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
    programs = labelled(TESTS / "scenarios" / "causes")
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


SCENARIOS = labelled()
ON_FRAMEWORKS = wild()
#: Rules of which no line of the program is the cause.
_WITHOUT_LINE = ("cpu_oversubscribed", "comm_bound")
_MAY_LACK_LINE = "slow_setting"  # a type has none, a check or a tracer has


def args(folder: Path, seconds: float, **given: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"gain": False, "interval": None, "attach": False, "inject": False} | given, folder=folder,
                           seconds=seconds)  # fmt: skip


def test_there_are_enough_and_enough_healthy_ones() -> None:
    assert len(SCENARIOS) >= 24
    assert sum(program.is_healthy for program in SCENARIOS.values()) >= 5
    assert len({program.package for program in ON_FRAMEWORKS.values()}) >= 10
    assert sum(program.is_healthy for program in ON_FRAMEWORKS.values()) * 2 == len(ON_FRAMEWORKS)


@pytest.mark.parametrize("program", [*SCENARIOS.values(), *ON_FRAMEWORKS.values()], ids=lambda program: program.name)
def test_labels_are_names_of_rules_and_of_lines_that_exist(program: Program) -> None:
    tree = ast.parse(program.path.read_text())
    for rule, _, cause in (each.partition("/") for each in program.rules):
        assert program.missed or (rule in RULE_NAMES and cause in ("", *RULE_CAUSES))
        assert bool(program.blamed) == (rule not in _WITHOUT_LINE) or rule == _MAY_LACK_LINE or program.missed
    assert (program.fixed is None) == program.is_healthy or program.missed
    if program.package:
        assert any(isinstance(node, ast.Name) and node.id == "PLANTED" for node in ast.walk(tree))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["photos_without_workers", "checkpoint_every_step", "healthy_compiled"])
def test_the_verdict_is_right(name: str, tmp_path: Path) -> None:
    row = tried(SCENARIOS[name], args(tmp_path, 6.0))
    assert row.right, row
    assert row.place_right is not False, row
    assert not row.false_alarms, row
    assert row.share_error is not None and row.share_error < 0.15, row
    assert row.steps_counted == row.steps, row


@pytest.mark.torch
@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
def test_the_verdict_is_right_when_tuimon_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "BEFORE_S", 0.5)
    program = SCENARIOS["photos_without_workers"]
    outcome = running.attached(program.name, program.command, 5.0, tmp_path, ("--inject",))
    row = judging.judge(program, outcome)
    assert (row.verdict.name, row.verdict.function) == ("input_bound/no_workers", "blur() photos_without_workers.py")
    records = list(read_log(str(outcome.log)))
    assert sum(record.count for record in records if isinstance(record, Steps)) > 5  # measured, not inferred


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(
            stream,
            id=stream.name,
            marks=[pytest.mark.xfail(reason=stream.wrong_because, strict=True)] if stream.wrong_because else [],
        )
        for stream in STREAMS
    ],
)
def test_the_verdict_on_a_simulated_gpu_training_is_right(stream: Stream, tmp_path: Path) -> None:
    row = judged(stream, tmp_path, stream.settles_s + 2.0)
    assert row.right, row
    assert row.place_right is not False, row
    assert not row.false_alarms, row
    assert row.verdict_s is not None and row.verdict_s <= stream.settles_s, row
    assert row.gain_error is None or abs(row.gain_error) <= 0.25, row
    assert len(row.verdict.name) + len(row.headline) <= 2 * 78, row  # two lines of a narrow terminal
