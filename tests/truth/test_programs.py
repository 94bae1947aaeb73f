"""The labels of all programs, short runs of three of them, and the simulated GPU trainings."""

from __future__ import annotations

import ast
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from docs import make_accuracy
from tests.scenarios.streams import STREAMS, Stream, judged
from tests.truth import judging, leaks, running, scenarios
from tests.truth.leaks import Leaks, Row
from tests.truth.programs import Program, labelled, tried, wild
from tests.truth.scenarios import Scenarios
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rulebook import CAUSES, RULE_NAMES
from tuimon.records import Steps
from tuimon.sources.log.reader import read_log

PROGRAMS = labelled()
ON_FRAMEWORKS = wild()
#: Rules of which no line of the program is the cause.
_WITHOUT_LINE = ("cpu_oversubscribed", "comm_bound")
_MAY_LACK_LINE = "slow_setting"  # a type has none, a check or a tracer has


def args(folder: Path, seconds: float, **given: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"gain": False, "interval": None, "attach": False, "inject": False} | given, folder=folder,
                           seconds=seconds)  # fmt: skip


def test_there_are_enough_and_enough_healthy_ones() -> None:
    assert len(PROGRAMS) >= 24
    assert sum(program.is_healthy for program in PROGRAMS.values()) >= 5
    assert len({program.package for program in ON_FRAMEWORKS.values()}) >= 10
    assert sum(program.is_healthy for program in ON_FRAMEWORKS.values()) * 2 == len(ON_FRAMEWORKS)


@pytest.mark.parametrize("program", [*PROGRAMS.values(), *ON_FRAMEWORKS.values()], ids=lambda program: program.name)
def test_labels_are_names_of_rules_and_of_lines_that_exist(program: Program) -> None:
    tree = ast.parse(program.path.read_text())
    for rule, _, cause in (each.partition("/") for each in program.rules):
        assert program.missed or (rule in RULE_NAMES and cause in ("", *CAUSES))
        assert bool(program.blamed) == (rule not in _WITHOUT_LINE) or rule == _MAY_LACK_LINE or program.missed
    assert (program.fixed is None) == program.is_healthy or program.missed
    if program.package:
        assert any(isinstance(node, ast.Name) and node.id == "PLANTED" for node in ast.walk(tree))


def test_any_rule_of_a_label_may_be_first_and_no_loud_one_of_a_healthy_program() -> None:
    program = Program("two", Path("two.py"), ("launch_bound", "input_bound/sampler"))
    found = Finding(rule="input_bound", severity="warning", headline="", fixes="", cause="sampler")
    assert program.is_right(found) and not program.is_right(None)
    assert not program.is_right(
        Finding(rule="input_bound", severity="warning", headline="", fixes="", cause="slow_item")
    )
    well = replace(program, rules=())
    assert well.is_false(found) and not well.is_right(found)
    assert well.is_right(Finding(rule="compute_bound_cpu", severity="info", headline="", fixes="")) and well.is_right(
        None
    )


def test_what_was_recorded_of_a_program_is_replaced_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenarios, "RESULTS", tmp_path / "accuracy.jsonl")
    first, second = (judged(stream, tmp_path, 4.0) for stream in STREAMS[:2])
    kind, names = Scenarios(), sorted(PROGRAMS)[:2]
    rows = [replaced(row, name=name) for row, name in zip((first, second), names, strict=True)]
    for row in rows:
        assert not kind.is_recorded(PROGRAMS[row.name])
        kind.record(PROGRAMS[row.name], [row], None)
        assert kind.is_recorded(PROGRAMS[row.name])
    again = replaced(rows[0], attached=rows[1], steps=1)
    kind.record(PROGRAMS[names[0]], [again], None)
    assert scenarios.results() == {names[0]: again, names[1]: rows[1]}


def test_the_page_shows_run_and_attach_and_lists_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = replaced(judged(STREAMS[4], tmp_path, 4.0), name="busy_thread", share_error=0.031, measured=7.7)
    wrong = replaced(found, right=False, place_right=False, verdict_s=None)
    row = replaced(found, attached=wrong)
    monkeypatch.setattr(make_accuracy, "LOGS", [])
    monkeypatch.setattr(make_accuracy, "results", lambda: {"busy_thread": row})
    page = make_accuracy.accuracy("scripts").splitlines()
    assert page[0].startswith(
        "**Verdict right: 1 of 1. Line right: 1 of 1. Largest error of a phase: median 3.1 points"
    )
    assert page[0].endswith("After attach: verdict right 0 of 1.**")
    cells = "input_bound/no_workers (critical) | train.py:40 | 3.1 points | 3 s |"
    assert (
        page[4].startswith(f"| busy_thread | input_bound | {cells} ")
        and " | 7.7x faster | **wrong:** input_bound" in page[4]
    )
    assert "- `busy_thread`" in page and page[-1].startswith("Not run yet: `anomaly_left_on`, `balanced_sampler`")
    monkeypatch.setattr(make_accuracy, "results", lambda: {"busy_thread": replaced(row, others_cores=1.0)})
    page = make_accuracy.accuracy("scripts").splitlines()
    assert (
        "Gain" not in page[0]
        and "7.7x" not in page[4]
        and "Other programs used 0.5 cores and more beside `busy_thread`." in page
    )


@pytest.mark.parametrize(
    ("promised", "measured", "held"),
    [
        ("1.6x to 1.8x faster", 1.33, "too high"),
        ("1.6x to 1.8x faster", 1.84, "within"),  # 1.8x, as it is shown
        ("1.6x to 1.8x faster", 1.86, "too low"),
        ("1.06x to 1.17x faster", 1.174, "within"),
        ("up to 2.0x faster", 1.1, "within"),
        ("up to 2.0x faster", 2.1, "too low"),
        ("at least 1.6x faster", 45.0, "within"),
        ("at least 1.6x faster", 1.5, "too high"),
        ("", 1.5, None),
    ],
)
def test_a_gain_as_it_is_shown_is_held_against_the_measured_one(
    promised: str, measured: float, held: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replaced(judged(STREAMS[4], tmp_path, 4.0), name="busy_thread", promised=promised, measured=measured)
    assert found.promised_against_measured == held
    assert replaced(found, right=False).promised_against_measured is None  # the fix of another fault
    monkeypatch.setattr(make_accuracy, "results", lambda: {"busy_thread": found})
    monkeypatch.setattr(make_accuracy, "LOGS", [])
    page = make_accuracy.accuracy("scripts")
    assert ("\nGain told too high: `busy_thread`.\n" in page) == (held == "too high")
    within, more, less = (int(held == ends) for ends in ("within", "too low", "too high"))
    sums = f"The fix gained what was told: {within} of 1, more: {more}, less: {less}."
    assert (sums in page) == (held is not None)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["photos_without_workers", "checkpoint_every_step", "healthy_compiled"])
def test_the_verdict_is_right(name: str, tmp_path: Path) -> None:
    row = tried(PROGRAMS[name], args(tmp_path, 6.0))
    assert row.right, row
    assert row.place_right is not False, row
    assert not row.false_alarms, row
    assert row.share_error is not None and row.share_error < 0.15, row
    assert row.steps_counted == row.steps, row


@pytest.mark.torch
@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
def test_the_verdict_is_right_when_tuimon_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "BEFORE_S", 0.5)
    program = PROGRAMS["photos_without_workers"]
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


def test_leaks_that_were_recorded_are_on_the_page_and_the_others_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaks, "RESULTS", tmp_path / "leaks.jsonl")
    programs = Leaks().programs()
    assert make_accuracy.accuracy("leaks").startswith("Not run yet: `batches_kept`, ")
    row = Row("losses_kept", "memory_pressure/growing (info)", True, "x.py:3", False, 16.4, ("memory_pressure",))
    Leaks().record(programs["losses_kept"], [row], None)
    assert leaks.results() == {"losses_kept": row} and Leaks().is_recorded(programs["losses_kept"])
    head, _, _, _, line, _, missing = make_accuracy.accuracy("leaks").splitlines()
    assert head == "named 1 of 1; with its line 0 of 1; false alarms in 1 of 1 trainings without a leak."
    assert line == "| losses_kept | memory_pressure/growing (info) | x.py:3 ! | 16 s | memory_pressure |"
    assert "`losses_kept`" not in missing and "`hooks_each_step`" in missing
