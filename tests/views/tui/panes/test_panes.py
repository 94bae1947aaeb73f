"""What the panes draw, without an app: pictures in, lines out."""

import pytest
from rich.cells import cell_len

from tests.views import streams
from tests.views.streams import INPUT_BOUND, MAIN
from tuimon.diagnosis.finding import Finding
from tuimon.records import Cost, Exit
from tuimon.session.rows import PhaseRow, PhaseTable, RangeRow, StepSummary, ThreadRow
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.panes.phases_pane import PhasesState, phases_lines
from tuimon.views.tui.panes.thread_list import matches
from tuimon.views.tui.panes.thread_rows import layout, thread_line, thread_lines
from tuimon.views.tui.panes.title_line import RunFacts, run_name, title_line
from tuimon.views.tui.panes.verdict_pane import Verdict, verdict_lines
from tuimon.views.tui.sheets.findings import findings_lines
from tuimon.views.tui.sheets.help import help_lines
from tuimon.views.tui.sheets.quit import quit_lines

STEPS = StepSummary(1000, 14.9, 67.0, 81.0, "data", 0.01, 0)
FACTS = RunFacts("train.py", 4242, 1, 192.0, STEPS, Cost(t=1, pid=0, window_s=1, cpu_ratio=0.04, sampler_cpu_ratio=0,
                 rss_bytes=62 << 20), None, paused=False)  # fmt: skip


def texts(lines):
    return [text_of(row).rstrip() for row in lines]


# -- title


def test_title_at_120_columns():
    row = text_of(title_line(FACTS, 120))
    assert row.startswith(" tuimon  train.py · pid 4242 · 3m12s · 14.9 steps/s · step 67.0 ms, p95 81.0  ")
    assert row.endswith("own cost 4 % cpu, 62 MiB ")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_title_fits_and_keeps_what_matters(width):
    row = title_line(FACTS, width)
    assert cells(row) == width
    assert "train.py" in text_of(row) and "67.0 ms" in text_of(row)


def test_title_before_the_first_step_and_paused():
    facts = FACTS._replace(steps=StepSummary(0, None, None, None, "data", 2.0, 0), cost=None, paused=True)
    row = text_of(title_line(facts, 120))
    assert "no step yet" in row and "own cost –" in row and " PAUSED " in row


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "dir/train.py", "--lr"], "train.py"),
        (["/usr/bin/python3.11", "-m", "pkg.train"], "pkg.train"),
        (["python", "-c", "import x"], "python"),
        (["torchrun", "--nproc-per-node", "2", "x.py"], "torchrun"),
        (["python"], "python"),
        ([], "–"),
        (["\x1b[31mx\n.py"], "x .py"),
    ],
)
def test_run_name(command, name):
    assert run_name(command) == name


# -- verdict

VERDICT = Verdict((INPUT_BOUND,), STEPS, has_phases=True, inferred=False, exit=None)


def test_verdict_in_two_lines_with_action_and_gain():
    first, second = verdict_lines(VERDICT, 120, 2)
    assert text_of(first).startswith("  INPUT-BOUND  62 % of every step waits for data: augment() transforms.py:31")
    assert [span.role for span in first][1] == "critical badge"
    assert text_of(second).rstrip().endswith("cheaper  ~2.1× faster")


def test_verdict_is_never_more_than_two_lines_at_80_columns():
    rows = texts(verdict_lines(VERDICT, 80, 2))
    assert rows == [
        "  INPUT-BOUND  62 % of every step waits for data: augment() transforms.py:31",
        "   keeps both workers at 100 %",
    ]
    assert len(verdict_lines(VERDICT, 80, 1)) == 1


def test_other_findings_are_counted():
    assert text_of(verdict_lines(VERDICT._replace(findings=(INPUT_BOUND,) * 3), 120, 2)[0]).endswith("+2 more ")


@pytest.mark.parametrize(
    ("exit_record", "text"),
    [
        (Exit(t=1, pid=1, exit_code=0), "  ENDED  exit code 0"),
        (Exit(t=1, pid=1, exit_code=1, last_line="ValueError: no"), "  ENDED  exit code 1 · ValueError: no"),
        (Exit(t=1, pid=1, exit_code=137, signal="SIGKILL"), "  ENDED  killed by SIGKILL (exit code 137)"),
        (Exit(t=1, pid=1, exit_code=None), "  ENDED  the process has ended"),
        (
            Exit(t=1, pid=1, exit_code=0, survivors=[7, 8]),
            "  ENDED  exit code 0 · still training: pid 7, pid 8",
        ),
    ],
)
def test_how_a_run_ended_comes_first(exit_record, text):
    assert texts(verdict_lines(VERDICT._replace(exit=exit_record), 120, 2))[0] == text


def test_without_findings_it_says_why():
    nothing = VERDICT._replace(findings=())
    assert "NOTHING FOUND" in texts(verdict_lines(nothing, 100, 2))[0]
    starting = texts(verdict_lines(nothing._replace(has_phases=False), 100, 2))
    assert starting == ["  STARTING  waiting for the first training steps", "   in data for 0.0s"]


def test_the_list_of_findings_shows_all_there_is():
    rows = "\n".join(texts(findings_lines([INPUT_BOUND, streams.SIDE_WORK], 100)))
    for part in ("INPUT-BOUND", "workers saturated",
                  "~2.1×", "62 %", "transforms.py:31  augment()", "out = cv(img",
                 "data per step       41.5 ms", "worker CPU          100 %", "hot share           –",
                 "SIDE-WORK"):  # fmt: skip
        assert part in rows
    assert texts(findings_lines([], 80)) == ["No rule has found anything so far."]


# -- phases

TABLE = PhaseTable(1, 30.0, 450, False, (
    PhaseRow("data", 0.62, 41.5), PhaseRow("forward", 0.11, 7.1), PhaseRow("backward", 0.16, 10.4),
    PhaseRow("optimizer", 0.06, 3.9), PhaseRow("other", 0.05, 3.2)))  # fmt: skip
PICTURE = PhasesState(TABLE, STEPS, ((41.5, 7.1, 10.4, 3.9, 3.2, 0.0),) * 5, 1, 1.0, (), ())


def test_phase_rows_line_up():
    rows = texts(phases_lines(PICTURE, 56, 12))
    assert rows[:5] == [
        "data      █████████████████▍              41.5 ms   62 %",
        "forward   ███▏                             7.1 ms   11 %",
        "backward  ████▌                           10.4 ms   16 %",
        "optimizer █▋                               3.9 ms    6 %",
        "other     █▍                               3.2 ms    5 %",
    ]
    assert rows[6] == "step time · last 5.0s                          0 – 80 ms"


def test_estimates_carry_a_tilde_and_their_error():
    rows = (PhaseRow("data", 0.6, 40.0, estimated=True, error=0.05), PhaseRow("forward", 0.4, None, estimated=True))
    drawn = texts(phases_lines(PICTURE._replace(table=TABLE._replace(rows=rows), history=()), 70, 6))
    assert drawn[0].endswith("~40.0 ms  ~60 % ±5 %")
    assert drawn[1].endswith(" –  ~40 %") and drawn[1].index("%") == drawn[0].index("%")


def test_ranges_stand_under_their_phase_and_the_deepest_give_way():
    ranges = (RangeRow("batch", "batch", 0, "data", 1.0, 60.0, 0.9),
              RangeRow("batch/augment", "augment", 1, "data", 2.0, 31.0, 0.46),
              RangeRow("conv", "conv", 0, "forward", 1.0, 5.0, 0.07))  # fmt: skip
    state = PICTURE._replace(table=TABLE._replace(ranges=ranges), history=())
    names = [row.strip().split("  ")[0] for row in texts(phases_lines(state, 60, 20))]
    assert [name.split(" █")[0] for name in names[:8]] == [
        "data",
        "└ batch",
        "└ augment ×2",
        "forward",
        "└ conv",
        "backward",
        "optimizer",
        "other",
    ]
    names = [row.strip().split("  ")[0] for row in texts(phases_lines(state, 60, 8))]
    assert [name.split(" █")[0] for name in names[:7]] == [
        "data",
        "└ batch",
        "forward",
        "└ conv",
        "backward",
        "optimizer",
        "other",
    ]


def test_notes_stay_at_the_bottom():
    assert texts(phases_lines(PICTURE._replace(notes=("12 markers lost",)), 56, 10))[-1] == "12 markers lost"


@pytest.mark.parametrize("width", [20, 36, 56, 100])
@pytest.mark.parametrize("height", [1, 4, 6, 9, 20, 40])
def test_phases_fit_their_pane(width, height):
    lines = phases_lines(PICTURE._replace(notes=("a note that is quite long " * 3,)), width, height)
    assert len(lines) <= height
    assert all(cells(row) <= max(width, 29) for row in lines)


# -- threads

MAIN_ROW = ThreadRow(4242, 4242, "main", "python", 0.38, "waiting", 0.01, None)


@pytest.mark.parametrize("width", [36, 60, 76, 96, 116, 196])
def test_thread_rows_fill_their_width(width):
    rows = [*streams.hostile().session.threads(), MAIN_ROW]
    columns = layout(rows, width)
    for row in rows:
        assert cell_len(text_of(thread_line(row, columns))) <= max(width, 40)


def test_a_thread_whole():
    (row, *_) = streams.input_bound(3).session.threads()
    hot = streams.input_bound(3).session.hot_lines(MAIN)
    drawn = "\n".join(texts(thread_lines(row, hot, 100)))
    for part in ("role      main", "/home/me/project/train.py:44", "for x, y in loader:", "65 %", "train.py:52"):
        assert part in drawn


def test_filter_looks_everywhere():
    (row, *_) = streams.input_bound(3).session.threads()
    assert all(matches(row, text) for text in ("MAIN", "4242", "loader", "train.py:44", "waiting", ""))
    assert not matches(row, "worker")


# -- texts


@pytest.mark.parametrize("width", [36, 60, 100])
def test_help_fits_and_explains_every_phase(width):
    lines = help_lines(width)
    assert all(cells(row) <= width for row in lines)
    drawn = "\n".join(texts(lines))
    for word in (
        "data",
        "forward",
        "backward",
        "optimizer",
        "other",
        "eval",
        "inferred",
        "delay",
        "own cost",
        "~",
        "–",
    ):
        assert word in drawn


def test_quit_dialog_before_and_while_ending():
    before = "\n".join(texts(quit_lines(4242, None, 56)))
    assert "tuimon attach 4242" in before and "end it" in before
    assert "sent SIGINT" in "\n".join(texts(quit_lines(4242, "sent SIGINT", 56)))


def test_text_from_outside_is_never_markup_or_control():
    finding = Finding(rule="x", severity="info", headline="[b]h\x1b[2J", action="\x07a", evidence={"k\x1b": "\x1bv"})
    for row in findings_lines([finding], 60) + verdict_lines(VERDICT._replace(findings=(finding,)), 60, 2):
        assert text_of(row).isprintable()
    assert "[b]h" in texts(verdict_lines(VERDICT._replace(findings=(finding,)), 60, 2))[0]
