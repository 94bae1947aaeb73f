"""The verdict in three to five rows, the title above, and how a run ended."""

import pytest
from msgspec import structs
from rich.cells import cell_len

from tests.session.records import header, loop, one_process, process, session_of, steps
from tests.session.test_state import run
from tests.views import streams
from tests.views.streams import INPUT_BOUND
from tests.views.tui.running_app import running, text, texts
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.verdicts import FirstVerdict
from tuimon.interval import Interval
from tuimon.records import NO_TORCH_YET, Exit, Node, Place
from tuimon.session.progress import Progress
from tuimon.session.session import Session
from tuimon.session.state import RunState
from tuimon.text import at
from tuimon.views.finding_text import NONE_KNOWN, NONE_SURE, ONLY_MINOR
from tuimon.views.report.report import parts_of
from tuimon.views.report_types import StateJson, filled
from tuimon.views.run_text import end_tip, state_text
from tuimon.views.tui.drawing.lines import line_width, text_of
from tuimon.views.tui.panes.title_line import TitleLine, title_items, title_line
from tuimon.views.tui.panes.verdict_pane import Verdict, VerdictPane, verdict_lines

PLACE = Place("/home/me/transforms.py", 31, "augment", "out = cv(img, kernel)")
FOUND = Finding(
    rule="input_bound",
    severity="critical",
    headline="62 % of every step waits for data: both workers are always busy",
    fixes=(Fix("num_workers=2 -> 6 at augment() transforms.py:31", 2.1, Interval(2.1, 2.1)),),
    share_of_step=0.62,
    where=(PLACE,),
)


def state_of(state):
    return filled(StateJson, state, where=None, text=state_text(state))


VERDICT = Verdict((FOUND,), state_of(RunState("training")), inferred=False, exit=None)
GAIN = "up to 2.1x faster"


@pytest.mark.parametrize("width", range(40, 140, 3))
def test_place_and_gain_are_never_cut_and_words_are_cut_whole(width):
    rows = texts(verdict_lines(VERDICT._replace(findings=(FOUND,) * 3), width, wraps=False))
    assert len(rows) == 3 and all(cell_len(row) <= width - 1 for row in rows)
    assert "transforms.py:31" in rows[1] and GAIN in rows[2]
    headline = rows[0].partition("INPUT-BOUND")[2].strip().removesuffix("…")
    assert FOUND.headline.startswith(headline) and (FOUND.headline + " ")[len(headline)] in " :,"


LONG = "set num_workers=12 (now 2) on this 16-core machine: each computes only 10 % of its time"


@pytest.mark.parametrize("width", range(70, 140, 3))
def test_headline_and_fix_go_on_in_a_second_row_instead_of_being_cut(width):
    found = structs.replace(FOUND, fixes=(Fix(LONG, 2.1, Interval(2.1, 2.1)),))
    rows = texts(verdict_lines(VERDICT._replace(findings=(found,)), width))
    assert (5 if width < 80 else 3) <= len(rows) <= 5 and all(cell_len(row) <= width - 1 for row in rows)
    words = " ".join(" ".join(row.removeprefix(" ┃ ").partition(GAIN)[0] for row in rows).split())
    assert FOUND.headline in words and LONG in words and sum(GAIN in row for row in rows) == 1


def test_without_a_source_line_the_place_stands_alone_and_without_a_place_the_headline_goes_on():
    bare = structs.replace(FOUND, where=(PLACE._replace(source=""),))
    assert "▸" not in texts(verdict_lines(VERDICT._replace(findings=(bare,)), 120))[1]
    nowhere = structs.replace(FOUND, where=())
    rows = texts(verdict_lines(VERDICT._replace(findings=(nowhere,)), 60))
    words = f"{rows[0].partition('INPUT-BOUND')[2].strip()} {rows[1].removeprefix(' ┃ ')}"
    assert " ".join(words.split()) == FOUND.headline


@pytest.mark.parametrize("function", ["augment", "<module>"])
def test_the_fix_leaves_out_the_place_that_the_row_above_shows(function):
    place = PLACE._replace(function=function)
    found = structs.replace(FOUND, where=(place,), fixes=(Fix(f"replace x.item() at {at(place)}: keep x"),))
    assert "replace x.item(): keep x" in texts(verdict_lines(VERDICT._replace(findings=(found,)), 120))[2]


def test_a_loop_without_steps_is_told_the_way_out_in_the_two_rows_that_are_free():
    now = parts_of(run(process()).shown())
    verdict = VERDICT._replace(findings=(), state=now.state, unseen=tuple(now.unseen))
    _, *rows = texts(verdict_lines(verdict, 80))
    told = " ".join(row.removeprefix(" ┃ ").strip() for row in rows)
    assert told.startswith("no steps were seen: torch ran no") and "tuimon.step()" in told and "…" not in told
    assert texts(verdict_lines(verdict, 60))[-1].endswith("…")  # two rows do not hold it


@pytest.mark.parametrize("severity", ["critical", "warning", "benign"])
def test_severities_are_told_apart_by_colour(severity):
    head, *_ = verdict_lines(VERDICT._replace(findings=(structs.replace(FOUND, severity=severity),)), 120)
    assert (head[1].role, head[2].role) == (severity, f"{severity} bold")


@pytest.mark.parametrize(
    ("fix", "verdict", "role"),
    [
        (Fix("a", 1.03, Interval(1.0, 1.03)), ONLY_MINOR, "benign"),
        (Fix("a", 1.4, Interval(1.04, 1.4)), NONE_SURE, "info"),
        (Fix("a"), NONE_KNOWN, "info"),
    ],
)
def test_what_is_not_worth_a_fix_is_no_headline_and_an_unknown_or_unsure_gain_is_not_a_small_one(fix, verdict, role):
    minor = Finding(rule="input_bound", severity="info", headline="13 % waits", fixes=(fix,), share_of_step=0.13)
    lines = verdict_lines(VERDICT._replace(findings=(minor,)), 120)
    rows = texts(lines)
    assert " ".join(rows[0].split()) == f"┃ NOTHING FOUND {verdict}" and lines[0][1].role == role
    assert "largest: 13 % waits" in rows[1] and "v 1 minor finding" in rows[2]


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"exit_code": 1, "last_line": "KeyError: 1"}, " ┃ KeyError: 1"),
        (
            {"exit_code": 1, "last_line": "KeyError: 1", "file": "a.py", "line": 3, "function": "f"},
            " ┃ at f() a.py:3: KeyError: 1",
        ),
        ({"exit_code": 0, "survivors": [7, 8]}, " ┃ still running: 7, 8 (tuimon attach 7)"),
    ],
)
def test_what_a_run_left_stands_above_the_finding(facts, text):
    rows = texts(verdict_lines(VERDICT._replace(exit=Exit(t=1, pid=1, **facts)), 120))
    assert len(rows) == 4 and rows[0] == text


@pytest.mark.parametrize(
    ("facts", "verdict", "badge", "role"),
    [
        ({"exit_code": 0}, "with exit code 0", " ENDED ok ", "benign"),
        ({"exit_code": 3}, "with exit code 3", " ENDED, exit code 3 ", "critical"),
        ({"exit_code": None}, "the process has ended", " ENDED ", "benign"),
        ({"exit_code": None, "file": "train.py"}, "by an error", " ENDED by an error ", "critical"),
        ({"exit_code": 137, "signal": "SIGKILL"}, "killed by SIGKILL", " ENDED by SIGKILL ", "critical"),
    ],
)
def test_how_a_run_ended_is_a_badge_of_the_title_and_takes_no_row_of_a_finding(facts, verdict, badge, role):
    end = Exit(t=192, pid=1, **facts)
    ended = VERDICT._replace(exit=end)
    assert verdict_lines(ended, 120) == verdict_lines(VERDICT, 120)
    assert " ".join(texts(verdict_lines(ended._replace(findings=()), 120))[0].split()) == f"┃ ENDED {verdict}"
    row = title(end, width=120)
    assert [span.text for span in row if span.role == f"{role} badge"] == [badge]
    assert f"{badge} after 3m12s" in text_of(row) and badge in text_of(title(end, width=40))


@pytest.mark.parametrize(
    ("last_line", "tip"),
    [
        ("EOFError: EOF when reading a line", "tuimon run --headless"),
        ("bdb.BdbQuit", "tuimon run --headless"),
        ("ModuleNotFoundError: No module named 'torch'", "ENV/bin/python"),
        ("KeyError: 'lr'", None),
        ("EOFError: Ran out of input", None),  # pickle's: a file was cut short
    ],
)
def test_what_helps_is_said_where_it_is_known(last_line, tip):
    end = Exit(t=1, pid=1, exit_code=1, last_line=last_line)
    ended = VERDICT._replace(findings=(), exit=end, tip=end_tip(end, before_torch=False))
    _, line, fix = texts(verdict_lines(ended, 80))
    assert last_line in line and "…" not in fix
    assert fix.strip() == "┃" if tip is None else fix.startswith(" ┃ TIP") and tip in fix


def test_without_findings_it_says_why():
    nothing = VERDICT._replace(findings=())
    assert "NOTHING FOUND" in texts(verdict_lines(nothing, 100))[0]
    assert "healthy" in texts(verdict_lines(nothing, 100))[0]
    assert "healthy" not in texts(verdict_lines(nothing._replace(sampled=False), 100))[0]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (RunState("starting"), "STARTING"),
        (
            RunState("step_open", 20.0, "in backward", None, Place("fit.py", 7, "closure"), 14),
            "STEP RUNNING  for 20s, 14 backward passes: in backward at closure() fit.py:7",
        ),
        (RunState("between_steps", 61.0, "in other"), "NO STEP  for 1m01s: in other"),
    ],
)
def test_without_steps_it_says_what_the_training_does(state, shown):
    verdict = VERDICT._replace(findings=(), state=state_of(state))
    assert texts(verdict_lines(verdict, 80))[0].rstrip() == f" ┃ {shown}"


# -- the first verdict waits until it has held


STEP = {"forward": 40.0, "backward": 60.0}
SMALL = Finding(rule="small_batch", severity="warning", headline="small", fixes=(Fix("larger batches"),))
HANG = Finding(rule="hang", severity="critical", headline="nothing moves", fixes=(Fix("look"),))


def test_one_that_gives_way_is_never_shown():
    first, session, shown = FirstVerdict(), one_process(), []
    for t in range(1, 16):
        session.add(steps(float(t), STEP))
        found = [SMALL] if t < 4 else [INPUT_BOUND]
        shown.append(first.measuring_s(session, found, found))
    assert shown[:8] == [1, 2, 3, 4, 5, 6, 7, 8] and shown[8:] == [None] * 7
    assert first.measuring_s(session, [SMALL], [SMALL]) is None  # from now on the hysteresis decides


def test_one_that_is_shown_but_no_longer_found_does_not_hold():
    first, session, shown = FirstVerdict(), one_process(), []
    for t in range(1, 13):
        session.add(steps(float(t), STEP))
        shown.append(first.measuring_s(session, [SMALL], [SMALL] if t < 4 else [INPUT_BOUND]))
    assert shown == [*range(1, 13)]


def test_a_long_set_up_does_not_replace_the_time_that_a_first_verdict_must_hold():
    first, session, shown = FirstVerdict(), one_process(), []
    for t in range(1, 31):
        session.add(steps(float(t), STEP if t > 20 else {}, count=10 if t > 20 else 0))
        found = [INPUT_BOUND] if t > 20 else []
        shown.append(first.measuring_s(session, found, found))
    assert shown == [None] * 20 + [1, 2, 3, 4, 5] + [None] * 5


def test_a_hang_and_the_end_of_a_run_wait_for_nothing():
    session = one_process(steps(1.0, STEP))
    assert FirstVerdict().measuring_s(session, [HANG], [HANG]) is None
    assert FirstVerdict().measuring_s(session, [INPUT_BOUND], [INPUT_BOUND]) is not None
    session.add(Exit(t=2.0, pid=1, exit_code=0))
    assert FirstVerdict().measuring_s(session, [INPUT_BOUND], [INPUT_BOUND]) is None


def test_a_log_of_which_nothing_has_been_read_is_no_run_that_starts():
    shown = [VerdictPane().collect(parts_of(session.shown()), []) for session in (Session(), session_of(header()))]
    assert ["".join(texts(verdict_lines(state, 80))).split()[1:3] for state in shown] == [
        ["READING", "the"],
        ["STARTING", "for"],
    ]


@pytest.mark.parametrize(
    ("measured_s", "findings", "name"),
    [
        (2, [INPUT_BOUND], "MEASURING  for 2 s so far"),
        (3, [INPUT_BOUND], "probably INPUT-BOUND"),
        (3, [], "MEASURING  for 3 s: no rule sees a bottleneck yet"),
        (None, [INPUT_BOUND], "INPUT-BOUND"),
    ],
)
async def test_meanwhile_a_probable_verdict_is_dim(measured_s, findings, name):
    played = streams.input_bound(5)
    played.measured_s, played.findings = measured_s, findings
    async with running(played) as (app, _):
        assert text(app, "verdict").startswith(f" ┃ {name}")
        roles = {span.role for row in app.board.verdict.lines for span in row}
        assert (roles == {"dim"}) == name.startswith("probably")


REASON = "started with -I or -E: it ignores PYTHONPATH"
RUN = (header(), process(), *loop(192, {"forward": 69}))


def title(*records, width=200, paused=False, **facts):
    """The title line of a run with these records after it."""
    state = TitleLine().collect(parts_of(session_of(RUN, *records).shown()), ())
    return title_line(state._replace(**facts), width, paused=paused)


def test_the_title_has_the_place_in_the_run_its_rates_and_the_time_left(monkeypatch):
    epoch = {"epochs_done": 2, "batch": 450, "batches": 1000, "epochs": 10}
    known = Progress(samples_per_s=477.0, tokens_per_s=61_200.0, **epoch, left_s=192.4, left_of="run")
    monkeypatch.setattr("tuimon.views.report.report.run_progress", lambda own: known)
    row = text_of(title())
    assert " · epoch 3 of 10, batch 450 of 1,000 · ~3m12s left · 477 samples/s · 61.2k tokens/s" in row
    narrow = text_of(title(width=100))
    assert "epoch 3" in narrow and "tokens/s" not in narrow


def test_the_time_is_that_of_the_run_also_for_a_rank_that_started_later():
    begun = header()
    later = structs.replace(process(), start_unix_s=begun.wall_unix_s + 100)
    assert " · 3m12s " in text_of(title(later))
    attached = structs.replace(process(), start_unix_s=begun.wall_unix_s - 60)
    assert " · 4m12s " in text_of(title(attached))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_title_fits_and_keeps_what_matters(width):
    row = title(width=width)
    assert line_width(row) == width
    assert "train.py" in text_of(row) and "mean 69.0 ms" in text_of(row)


def test_in_a_narrow_title_a_figure_is_left_out_whole():
    named = structs.replace(header(), command=["a_long_name_of_a_script.py"])
    row = text_of(title(named, Exit(t=192, pid=1, exit_code=0), width=44))
    assert "ENDED ok" in row and "69" not in row and "…" not in row


@pytest.mark.parametrize("width", [80, 120])
def test_the_title_names_a_node_that_writes_nothing(width):
    node = Node(t=192.0, pid=0, number=7, host="node007", cpu_count=8, state="late", behind_s=28.0)
    row = title(node, width=width, followed=True)
    assert line_width(row) == width
    assert "node007 silent for 28s · " in text_of(row) and "mean 69.0 ms" in text_of(row)


@pytest.mark.parametrize(
    ("facts", "badge"),
    [
        ({"read_ratio": 0.43, "followed": True}, "READING 43 %"),
        ({"read_ratio": 1.0}, "READING 99 %"),
        ({"followed": True}, "LIVE"),
        ({"paused": True}, "PAUSED"),
        ({}, None),
    ],
)
def test_badges_say_whether_the_screen_moves(facts, badge):
    shown = [
        word for word in ("READING 43 %", "READING 99 %", "LIVE", "PAUSED") if f" {word} " in text_of(title(**facts))
    ]
    assert shown == ([badge] if badge else [])


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "dir/train.py", "--lr"], "train.py"),
        (["/usr/bin/python3.11", "-m", "pkg.train"], "pkg.train"),
        (["python", "-c", "import x"], "python"),
        (["torchrun", "--nproc-per-node", "2", "x.py"], "x.py"),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "pkg.train"], "pkg.train"),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "x.py"], "x.py"),
        (["python", "-m", "pkg.train", "-m", "10"], "pkg.train"),
        (["timeout", "40", "nice", "python", "train.py"], "train.py"),
        (["bash", "train.sh"], "bash"),
        ([], "–"),
        (["\x1b[31mx\n.py"], "x .py"),
    ],
)
def test_the_title_names_the_program_and_not_what_starts_it(command, name):
    session = session_of(structs.replace(header(), command=command))
    assert title_items(parts_of(session.shown()))[0] == (0, name, "strong")


@pytest.mark.parametrize(
    ("mode", "reason", "is_said"), [("run", REASON, True), ("attach", REASON, False), ("run", NO_TORCH_YET, False)]
)
def test_the_title_says_that_hooks_are_missing_why_and_what_that_costs(mode, reason, is_said) -> None:
    started = process(markers=False, markers_reason=reason)
    told = structs.replace(header(), mode=mode), started
    assert (f"no hooks, {reason}; figures are estimates" in text_of(title(*told))) == is_said
    assert ("no hooks" in text_of(title(*told, width=80))) == is_said
