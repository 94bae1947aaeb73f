"""The title line at every width."""

import pytest
from msgspec import structs

from tests.session.records import header, process, session_of
from tuimon.records import NO_TORCH_YET, Cost, Exit
from tuimon.session.progress import Left, RunProgress
from tuimon.session.ranks import Which
from tuimon.session.rows import EpochRow, StepSummary
from tuimon.session.session import Session
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.panes.title_line import RunFacts, TitleLine, run_name, title_line

STEPS = StepSummary(1000, 14.9, 67.0, 81.0, "data", 0.01, 0)


COST = Cost(t=1, pid=0, window_s=1, cpu_ratio=0.04, sampler_cpu_ratio=0, rss_bytes=62 << 20)
FACTS = RunFacts("train.py", 4242, Which(), 192.0, STEPS, COST, None, paused=False)


def test_the_title_has_the_place_in_the_run_its_rates_and_the_time_left():
    known = RunProgress(
        samples_per_s=477.0, tokens_per_s=61_200.0, epoch=EpochRow(2, 450, 1000), epochs=10, left=Left(192.4, "run")
    )
    row = text_of(title_line(FACTS._replace(progress=known), 200))
    assert " · 477 samples/s · 61.2k tokens/s · epoch 3 of 10, batch 450 of 1 000 · ~3m12s left" in row


@pytest.mark.parametrize(
    ("end", "text", "role"),
    [
        (Exit(t=1, pid=1, exit_code=0), " ENDED ok  after 3m12s", "benign badge"),
        (Exit(t=1, pid=1, exit_code=3), " ENDED, exit code 3  after 3m12s", "critical badge"),
        (Exit(t=1, pid=1, exit_code=137, signal="SIGKILL"), " ENDED by SIGKILL  after 3m12s", "critical badge"),
        (Exit(t=1, pid=1, exit_code=None), " ENDED  after 3m12s", "benign badge"),
        (Exit(t=1, pid=1, exit_code=None, file="x.py"), " ENDED by an error  after 3m12s", "critical badge"),
    ],
)
def test_an_ended_run_is_titled_so(end, text, role):
    row = title_line(FACTS._replace(exit=end), 120)
    assert text in text_of(row)
    (badge,) = [span for span in row if span.role.endswith("badge")]
    assert badge.role == role
    assert badge.text in text_of(title_line(FACTS._replace(exit=end), 40))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_title_fits_and_keeps_what_matters(width):
    row = title_line(FACTS, width)
    assert cells(row) == width
    assert "train.py" in text_of(row) and "67.0 ms" in text_of(row)


def test_in_a_narrow_title_a_figure_is_left_out_whole():
    row = text_of(title_line(FACTS._replace(name="a_long_name_of_a_script.py", exit=Exit(t=1, pid=1, exit_code=0)), 44))
    assert "ENDED ok" in row and "67" not in row and "…" not in row


@pytest.mark.parametrize("width", [80, 120])
def test_the_title_names_a_node_that_writes_nothing(width):
    facts = FACTS._replace(nodes="node007 silent for 28s", training=Which(256), followed=True)
    row = title_line(facts, width)
    assert cells(row) == width
    assert "node007 silent for 28s · " in text_of(row) and "67.0 ms" in text_of(row)


def test_of_a_log_that_is_still_being_read_the_title_says_how_far_that_is_and_not_that_it_is_live():
    row = text_of(title_line(FACTS._replace(read_ratio=0.43, followed=True), 120))
    assert " READING 43 % " in row and "LIVE" not in row
    assert " LIVE " in text_of(title_line(FACTS._replace(followed=True), 120))


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


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["timeout", "40", "nice", "python", "train.py"], "train.py"),
        (["env", "OMP_NUM_THREADS=1", "python", "train.py"], "train.py"),
        (["bash", "train.sh"], "bash"),
    ],
)
def test_a_program_that_only_starts_the_training_is_no_name_of_it(command, name):
    pane = TitleLine()
    session = Session()
    session.add(structs.replace(header(), command=command))
    assert pane.collect(session, ()).name == command[0]
    session.add(process())
    assert pane.collect(session, ()).name == name


def test_the_title_says_that_hooks_are_missing_why_and_what_that_costs() -> None:
    reason = "started with -I or -E: it ignores PYTHONPATH"
    facts = FACTS._replace(no_hooks=reason)
    assert f"no hooks, {reason}; figures are estimates" in text_of(title_line(facts, 160))
    assert "no hooks" in text_of(title_line(facts, 80))
    started = process(pid=100, markers=False, markers_reason=reason)
    assert TitleLine().collect(session_of(header(), started), ()).no_hooks == reason
    attached = structs.replace(header(), mode="attach")
    assert TitleLine().collect(session_of(attached, started), ()).no_hooks is None
    later = structs.replace(started, markers_reason=NO_TORCH_YET)
    assert TitleLine().collect(session_of(header(), later), ()).no_hooks is None
