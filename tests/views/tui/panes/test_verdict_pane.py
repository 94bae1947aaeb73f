"""The verdict in one to three lines, and how a run ended."""

import pytest
from msgspec import structs

from tests.views.streams import INPUT_BOUND
from tests.views.tui.texts import texts
from tuimon.diagnosis.finding import Finding
from tuimon.records import Exit, Place
from tuimon.session.state import RunState
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.panes.verdict_pane import Verdict, verdict_lines
from tuimon.views.tui.sheets.finding_lines import findings_lines

VERDICT = Verdict((INPUT_BOUND,), RunState("training"), inferred=False, exit=None)


def test_verdict_in_two_lines_with_action_and_gain():
    first, second = verdict_lines(VERDICT, 120, 2)
    assert text_of(first).startswith("  INPUT-BOUND  62 % of every step waits for data: augment() transforms.py:31")
    assert [span.role for span in first][1] == "critical badge"
    assert text_of(second).rstrip().endswith("cheaper  ~2.1x faster")


def test_where_the_headline_takes_both_lines_advice_and_gain_stand_behind_it():
    rows = texts(verdict_lines(VERDICT, 80, 2))
    assert [row.rstrip() for row in rows] == [
        "  INPUT-BOUND  62 % of every step waits for data: augment() transforms.py:31",
        "   keeps both workers at 100 % → num_workers=2 -> 6 on this 16-…  ~2.1x faster",
    ]
    assert len(verdict_lines(VERDICT, 80, 1)) == 1


def test_advice_that_has_no_room_is_left_out_whole():
    long = structs.replace(INPUT_BOUND, headline="62 % of every step " + "waits " * 15, where=())
    rows = texts(verdict_lines(VERDICT._replace(findings=(long,)), 80, 2))
    assert rows[1].rstrip() == "   " + " ".join(["waits"] * rows[1].count("waits")) + "  ~2.1x faster"


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("width", range(50, 100))
def test_a_headline_is_wrapped_where_it_would_be_cut(width, others):
    verdict = VERDICT._replace(findings=(INPUT_BOUND,) * (1 + others))
    first, *_ = texts(verdict_lines(verdict, width, 3))
    assert "…" not in first.partition("+")[0]


def test_a_third_line_is_for_the_advice():
    rows = texts(verdict_lines(VERDICT, 80, 3))
    assert [row.rstrip() for row in rows[1:]] == [
        "   keeps both workers at 100 %",
        "  → num_workers=2 -> 6 on this 16-core machine; or make augment…   ~2.1x faster",
    ]


def test_or_for_the_rest_of_long_advice():
    long = structs.replace(INPUT_BOUND, headline="62 % waits", where=(), action="word " * 18)
    first, second, third = texts(verdict_lines(VERDICT._replace(findings=(long,)), 60, 3))
    assert first.endswith("62 % waits") and second == "  → " + " ".join(["word"] * 11)
    assert third.rstrip() == "    " + " ".join(["word"] * 7) + "  ~2.1x faster"


@pytest.mark.parametrize(
    ("low", "likely", "high", "shown"),
    [
        (None, 2.1, None, "~2.1x faster"),
        (2.3, 4.2, 4.5, "2.3–4.5x faster"),
        (1.04, 1.07, 1.08, "1.04–1.08x faster"),
        (None, None, None, ""),
    ],
)
def test_a_gain_is_a_range_where_it_is_one(low, likely, high, shown):
    found = structs.replace(
        INPUT_BOUND, action="do", estimated_speedup=likely, speedup_at_least=low, speedup_at_most=high
    )
    _, advice = texts(verdict_lines(VERDICT._replace(findings=(found,)), 120, 2))
    assert advice.strip().removeprefix("→ do").strip() == shown


def test_what_is_not_worth_a_fix_is_no_headline():
    minor = Finding(rule="input_bound", severity="info", headline="13 % waits", action="", share_of_step=0.13)
    (row,) = texts(verdict_lines(VERDICT._replace(findings=(minor,)), 80, 2))
    assert " ".join(row.split()) == "NOTHING FOUND No finding whose fix gains 5 % or more. +1 minor"


def test_other_findings_are_counted():
    assert text_of(verdict_lines(VERDICT._replace(findings=(INPUT_BOUND,) * 3), 120, 2)[0]).endswith("+2 more ")


@pytest.mark.parametrize(
    ("exit_record", "text"),
    [
        (Exit(t=1, pid=1, exit_code=1, last_line="ValueError: no"), "  ENDED  exit code 1 · ValueError: no"),
        (Exit(t=1, pid=1, exit_code=137, signal="SIGKILL"), "  ENDED  killed by SIGKILL (exit code 137)"),
        (
            Exit(t=1, pid=1, exit_code=0, survivors=[7, 8]),
            "  ENDED  exit code 0 · still running: pid 7, pid 8 (tuimon attach 7)",
        ),
    ],
)
def test_how_a_run_ended_comes_first(exit_record, text):
    assert texts(verdict_lines(VERDICT._replace(exit=exit_record), 120, 2))[0] == text


@pytest.mark.parametrize(
    ("exit_record", "text"),
    [
        (Exit(t=1, pid=1, exit_code=0), "  ENDED  exit code 0"),
        (Exit(t=1, pid=1, exit_code=None), "  ENDED  the process has ended"),
    ],
)
def test_that_it_ended_well_leaves_all_lines_to_a_finding(exit_record, text):
    ended = VERDICT._replace(exit=exit_record)
    assert verdict_lines(ended, 120, 2) == verdict_lines(VERDICT, 120, 2)
    assert texts(verdict_lines(ended._replace(findings=()), 120, 2)) == [text]


def test_without_findings_it_says_why():
    nothing = VERDICT._replace(findings=())
    assert "NOTHING FOUND" in texts(verdict_lines(nothing, 100, 2))[0]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (RunState("starting"), "  STARTING"),
        (
            RunState("starting", 14.0, "importing transformers", 12.0),
            "  STARTING  for 14s: importing transformers for 12s",
        ),
        (
            RunState("starting", 14.0, "preparing data", 9.0, Place("/home/me/prep.py", 40, "load")),
            "  STARTING  for 14s: preparing data at load() prep.py:40 for 9.0s",
        ),
        (
            RunState("step_open", 20.0, "in backward", None, Place("fit.py", 7, "closure"), 14),
            "  STEP RUNNING  for 20s, 14 backward passes: in backward at closure() fit.py:7",
        ),
        (RunState("between_steps", 61.0, "in other"), "  NO STEP  for 1m01s: in other"),
    ],
)
def test_without_steps_it_says_what_the_training_does(state, shown):
    verdict = VERDICT._replace(findings=(), state=state)
    assert [row.rstrip() for row in texts(verdict_lines(verdict, 80, 2))] == [shown]


def test_text_from_outside_is_never_markup_or_control():
    finding = Finding(rule="x", severity="info", headline="[b]h\x1b[2J", action="\x07a", evidence={"k\x1b": "\x1bv"})
    for row in findings_lines([finding], 60) + verdict_lines(VERDICT._replace(findings=(finding,)), 60, 2):
        assert text_of(row).isprintable()
    assert "[b]h" in texts(verdict_lines(VERDICT._replace(findings=(finding,)), 60, 2))[0]
