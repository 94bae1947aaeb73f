"""The experiment itself: its scripts are valid, a fix is the change that it says, and the table counts right."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.random_loops.script import script_of
from tests.random_loops.works import CAUSE
from tests.truth.gain import Gain, Tried, change_of, changed, measured, plan_of
from tests.truth.kind import line
from tests.truth.loops import write
from tuimon.diagnosis.finding import Change, Finding, Fix
from tuimon.records import Place

SEEDS = range(300, 360)


def test_every_script_and_every_change_of_it_compiles():
    for plan in map(plan_of, SEEDS):
        for change in ("as it is", "piece_0*0", "piece_0*0.5", "workers*0", "workers*3", "persistent*1"):
            other = changed(plan, change)
            if other is not None:
                ast.parse(script_of(other))


def test_less_of_a_piece_is_less_work_of_it_alone():
    plan = next(plan for plan in map(plan_of, SEEDS) if plan.pieces[0].amount >= 4)
    half = changed(plan, f"{plan.pieces[0].name}*0.5")
    assert half is not None
    assert half.pieces[0].amount == round(plan.pieces[0].amount / 2) and half.pieces[1:] == plan.pieces[1:]
    assert changed(plan, "workers*3").workers == 3
    assert changed(plan, "no_piece*0") is None


def test_a_fix_is_the_change_of_the_piece_that_its_finding_names(tmp_path: Path):
    plan = next(
        plan for plan in map(plan_of, SEEDS) if any(p.place == "item" and p.name == "piece_0" for p in plan.pieces)
    )
    script = write(plan, tmp_path)
    number = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if text.endswith(f"{CAUSE}piece_0"))
    found = Finding(rule="input_bound", severity="warning", headline="", where=(Place(str(script), number, "f"),))
    assert change_of(found, Fix("cheaper", change=Change("items", 0.5)), plan, script) == "piece_0*0.5"
    assert change_of(found, Fix("less often", change=Change("side_work", 0.5)), plan, script) is None
    assert change_of(found, Fix("more", change=Change("workers", 2)), plan, script) == "workers*2"
    assert change_of(found, Fix("look"), plan, script) is None


def test_estimates_count_by_how_close_they_are():
    def row(estimated, measured):
        fix = Fix("do it", estimated, 0.8 * estimated, estimated, Change("items", 0.0))
        return Tried("loop_1", "input_bound", "warning", "piece_0*0", fix, measured)

    rows = [row(2.0, 2.4), row(2.0, 4.0), row(2.0, None)]
    assert [each.is_close for each in rows] == [True, False, None]
    assert "items free               1 of 2     1 of 2  1" in list(Gain().totals(rows))
    assert "2.00x" in line(Gain.columns, rows[0]) and "yes" in line(Gain.columns, rows[0])


@pytest.mark.torch
def test_a_script_without_its_slow_items_is_faster_by_what_they_took(tmp_path: Path):
    plan = next(
        plan
        for plan in map(plan_of, range(300, 900))
        if plan.workers == 0 and any((p.place, p.work, p.name) == ("item", "remote", "piece_0") for p in plan.pieces)
    )
    gains = measured(plan, ["piece_0*0", "no_piece*0"], 0.5, tmp_path)
    assert gains["piece_0*0"] > 1.2
    assert measured(plan, ["piece_0*0"], 0.5, tmp_path) == {"piece_0*0": gains["piece_0*0"]}
    assert "no_piece*0" not in gains
