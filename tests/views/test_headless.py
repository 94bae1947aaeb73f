"""Headless lines on literal sessions."""

import fcntl
import io
import os
import struct
import termios
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.gpu_simulator import sessions
from tests.session import records
from tests.session.records import extend, one_process, session_of
from tests.small_terminal import SmallTerminal
from tests.views.tui.running_app import texts
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.interval import Interval
from tuimon.records import NO_TORCH_YET, Exit, Gpu, GpuPhase, GpuTime, Notice, Place, Printed
from tuimon.session.sampling import Sampler
from tuimon.session.session import Session
from tuimon.session.steps import StepSummary
from tuimon.views import headless
from tuimon.views.headless import HeadlessView, summary_lines
from tuimon.views.report.report import parts_of
from tuimon.views.tui.panes.verdict_pane import VerdictPane, verdict_lines

INPUT_BOUND = Finding(
    rule="input_bound",
    severity="critical",
    headline="62 % of every step waits for data: augment()\x1b[1m transforms.py:31",
    fixes=(Fix("num_workers=2 -> 8"),),
    where=(Place("transforms.py", 31, "augment"),),
)
PHASES = {"data": 62, "forward": 11, "backward": 16, "optimizer": 6, "other": 5}


def progress(session: Session) -> str:
    return headless.progress(parts_of(session.shown()))


def session(*more: object, windows: int = 40) -> Session:
    return one_process(*more, records.loop(windows, PHASES))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_tells_it_all() -> None:
    gpu = Gpu(t=40.0, pid=0, index=0, uuid="u", name="H", util_ratio=0.37, pids=[100])
    stream = io.StringIO()
    HeadlessView(stream).show(session(gpu), [INPUT_BOUND])
    line, verdict = stream.getvalue().splitlines()
    assert line.startswith("[tuimon 00:00:40] 10.0 steps/s  ")
    assert "data 62% fwd 11% bwd 16% opt 6% other 5%" in line
    assert "GPU 37 %" in line
    assert line.endswith("  INPUT-BOUND")
    assert verdict == "[tuimon] INPUT-BOUND: 62 % of every step waits for data: augment() transforms.py:31"
    assert "\x1b" not in stream.getvalue()


def test_the_verdict_is_told_when_it_changes() -> None:
    stream = io.StringIO()
    view = HeadlessView(stream)
    other = Finding(rule="side_work", severity="warning", headline="checkpoints take 30 %")
    for findings in ([INPUT_BOUND], [INPUT_BOUND], [other], [INPUT_BOUND]):
        view.show(session(), findings)
    said = [line for line in stream.getvalue().splitlines() if "waits for data" in line or "checkpoints" in line]
    names = [line.split(":")[0].removeprefix("[tuimon] ") for line in said]
    assert names == ["INPUT-BOUND", "SIDE-WORK", "INPUT-BOUND"]
    assert sum(line.startswith("[tuimon 00:00:40] ") for line in stream.getvalue().splitlines()) == 4


def test_behind_a_minor_finding_no_other_is_the_verdict() -> None:
    minor, other = (Finding(rule=rule, severity="info", headline="") for rule in ("side_work", "neighbour"))
    stream = io.StringIO()
    HeadlessView(stream).show(session(), [minor, other])
    assert "NEIGHBOUR" not in stream.getvalue()


def test_a_verdict_that_has_not_held_is_a_probable_one() -> None:
    stream = io.StringIO()
    view = HeadlessView(stream)
    for measured_s in (2, 3, None):
        view.show(session(), [INPUT_BOUND], measured_s)
    early, probable, *held = stream.getvalue().splitlines()
    assert "INPUT-BOUND" not in early and probable.endswith("  probably INPUT-BOUND")
    assert "probably" not in held[0] and held[1].startswith("[tuimon] INPUT-BOUND: 62 %")


def test_a_line_has_at_most_100_columns() -> None:
    stream = io.StringIO()
    gpus = [Gpu(t=40.0, pid=0, index=i, uuid=f"u{i}", name="H", util_ratio=0.37, pids=[100]) for i in range(8)]
    printed = Printed(t=40.0, pid=100, place="step 400 of 5000, 07:40 left", loss="0.3125")
    found = session(*gpus, printed)
    HeadlessView(stream).show(found, [replace(INPUT_BOUND, headline="62 % of every step waits " * 8)])
    lines = stream.getvalue().splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 100
    assert lines[0].startswith("[tuimon 00:00:40] 10.0 steps/s  data 62% fwd 11% bwd 16% opt 6% other 5%")
    assert "step 400 of 5000, 07:40 left" in progress(found) and "loss 0.3125" in progress(found)


def test_while_a_training_starts_there_is_a_line_in_ten_seconds() -> None:
    stream, found = io.StringIO(), one_process()
    view = HeadlessView(stream)
    for t in range(1, 26):
        found.add(records.steps(float(t), {}, count=0))
        view.show(found, [])
    times = [line[8:16] for line in stream.getvalue().splitlines()]
    assert times == ["00:00:01", "00:00:11", "00:00:21"]


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("1", False)])
def test_colour_only_on_a_terminal_that_wants_it(
    no_color: str | None, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    stream = Terminal()
    HeadlessView(stream).show(session(), [INPUT_BOUND])
    assert ("\x1b[31mINPUT-BOUND\x1b[0m" in stream.getvalue()) == coloured


def test_before_the_first_step_it_says_what_it_waits_for() -> None:
    assert progress(Session()) == "waiting for a Python process that trains"
    found = session_of(records.header())
    assert progress(found) == "starting for 0.0s"
    extend(found, records.process(), records.steps(1.0, {}, count=0, open_phase="forward", open_for_s=12.0))
    assert progress(found) == "starting for 1.0s"
    compiler = records.frames(("/lib/site-packages/torch/_inductor/codecache.py", 9, "compile"))
    extend(found, compiler, records.stacks(3.0, ([0], 20)))
    assert progress(found) == "starting for 3.0s: compiling at compile() codecache.py:9 for 1.0s"
    found.add(records.steps(4.0, {}, count=0, backwards=14, open_phase="forward", open_for_s=0.4))
    at = "in forward at compile() codecache.py:9 for 0.4s"
    assert progress(found) == f"step running for 1.0s, 14 backward passes: {at}"


def test_of_a_loop_that_stands_still_pace_and_phases_are_not_told() -> None:
    found = session()
    still = {"count": 0, "backwards": 0, "open_phase": "backward"}
    found.add(records.steps(44.0, {}, first_index=400, open_for_s=4.0, **still))
    assert "steps/s" in progress(found) and "no step for 4.0s" in progress(found)
    found.add(records.steps(48.0, {}, first_index=400, open_for_s=8.0, **still))
    assert progress(found).startswith("no step for 8.0s: in backward") and "data" not in progress(found)


def test_notices_are_told_once() -> None:
    stream = io.StringIO()
    view = HeadlessView(stream)
    found = session(Notice(t=1.0, pid=0, source="gpu", level="info", message="no driver", hint="load it"))
    view.show(found, [])
    view.show(found, [])
    assert stream.getvalue().count("[tuimon] gpu: no driver – load it\n") == 1


def test_a_broken_stream_is_left_alone() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    view = HeadlessView(Broken())
    view.show(session(), [])
    view.write_message("nobody hears it")
    HeadlessView(None).show(session(), [])


def test_a_stream_without_unicode() -> None:
    raw = io.BytesIO()
    view = HeadlessView(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    view.write_message("no – dash")
    assert raw.getvalue() == b"[tuimon] no ? dash\n"


def test_the_summary() -> None:
    stream = io.StringIO()
    found = session()
    found.add(Exit(t=41.0, pid=100, exit_code=1, last_line="KeyError: \x1b[31m1", survivors=[5, 6]))
    HeadlessView(stream).summary(found, [INPUT_BOUND], "run.jsonl")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "[tuimon] ended with exit code 1: KeyError: 1; still running: 5, 6 (tuimon attach 5)"
    assert "400 steps, 10.0 steps/s, median" in lines[1]
    assert "data 62%" in lines[2] and lines[3].startswith("[tuimon] goodput: 98 % of 41s in steps")
    assert lines[-1] == "[tuimon] log: run.jsonl (tuimon report run.jsonl)"
    assert any("num_workers=2 -> 8" in line for line in lines)


def test_the_last_lines_have_at_most_100_columns(tmp_path: Path) -> None:
    found = replace(
        INPUT_BOUND,
        headline="62 % of each step waits " * 8,
        fixes=(Fix("more workers " * 12, 2.13, Interval(2.13, 2.13)),),
    )
    stream, log = io.StringIO(), str(tmp_path / "a_long_name_of_a_run" / "another_long_name_of_a_run.jsonl")
    HeadlessView(stream).summary(session(), [found], log)
    lines = stream.getvalue().splitlines()
    assert "(up to 2.1x faster)" in " ".join(line.removeprefix("[tuimon]").strip() for line in lines)
    assert "[tuimon] - at `augment() transforms.py:31`" in lines
    assert not [line for line in lines if len(line) > 100 and log not in line]
    assert any(line.endswith(f"(tuimon report {log})") for line in lines)


@pytest.mark.parametrize("already", ["", "  3%|#   | 4/100"], ids=["first column", "beside a bar"])
def test_lines_start_on_a_fresh_line_of_a_terminal(already: str) -> None:
    screen, (ours, theirs) = SmallTerminal(40, 6), os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 6, 40, 0, 0))
    with os.fdopen(theirs, "w") as terminal:
        terminal.write(already)
        terminal.flush()
        HeadlessView(terminal).write_message("hello")
        while not any("hello" in row for row in screen.display):
            screen.feed(os.read(ours, 4096))
    os.close(ours)
    shown = [row.rstrip() for row in screen.display]
    assert shown[: 1 + bool(already)] == [*filter(None, [already.rstrip()]), "[tuimon] hello"]


def test_a_fast_loop_of_which_some_steps_are_timed() -> None:
    windows = [
        records.steps(t, {"forward": 0.4}, count=1000, first_index=1000 * t, timed=125, open_phase="forward")
        for t in range(1, 5)
    ]
    assert "(1 of 8 steps timed)" in progress(records.session_of(records.header(), *windows))


def test_a_run_without_torch_says_that_nothing_was_measured() -> None:
    waits = records.process(markers=False, markers_reason=NO_TORCH_YET)
    whole = session_of(records.header(), waits, Exit(t=9.0, pid=100, exit_code=0))
    assert summary_lines(whole, []) == [
        "ended with exit code 0",
        "ended after 9.0s: this program never imported torch; nothing was measured",
    ]


@pytest.mark.parametrize(
    ("exit_code", "last_line", "torch", "tip"),
    [
        # headless nothing reads the output
        (1, None, None, "if a module is missing, is it in the script's environment?"),
        (1, "ModuleNotFoundError: No module named 'lightning'", "2.13", "is it in the script's environment?"),
        (1, "KeyError: 'lr'", None, None),
        (1, None, "2.13", None),
        (2, None, None, None),  # a wrong argument
        (0, None, None, None),
    ],
)
@pytest.mark.parametrize("command", [["python", "train.py"], ["bash", "train.sh"]])
def test_a_run_without_its_environment_gets_the_tip(
    command: list[str], exit_code: int, last_line: str | None, torch: str | None, tip: str | None
) -> None:
    root = records.process(command=command, torch=torch, markers=torch is not None)
    end = Exit(t=0.4, pid=100, exit_code=exit_code, last_line=last_line)
    whole = session_of(records.header(), root, end)
    tips = [line for line in summary_lines(whole, []) if line.startswith("tip:")]
    assert tips == ([f"tip: {tip} tuimon run ENV/bin/python train.py"] if tip else [])
    shown = [
        row for row in texts(verdict_lines(VerdictPane().collect(parts_of(whole.shown()), []), 110)) if "TIP" in row
    ]
    assert shown == ([f" ┃ TIP  {tip} tuimon run ENV/bin/python train.py"] if tip else [])


def test_a_training_without_hooks_that_fails_was_in_its_environment() -> None:
    sampled = records.process(torch=None, markers=False, markers_reason="started with -I or -E")
    made = records.steps(1.0, {"forward": 50})
    whole = session_of(records.header(), sampled, made, Exit(t=2.0, pid=100, exit_code=1))
    assert not any(line.startswith("tip:") for line in summary_lines(whole, []))


def test_after_the_end_a_rate_that_is_only_estimated_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sampler, "steps_per_second", lambda self, since_s: 2.0)
    whole = one_process(Exit(t=5.0, pid=100, exit_code=0), markers=False)
    assert whole.shown() is whole.over("whole")
    assert whole.shown().of(100).steps == StepSummary(0, None, None, 2.0, 0)


def on_gpu(kind: str) -> Session:
    return session_of(*sessions.records(kind))


def test_headless_names_the_lead_and_the_idle_share() -> None:
    assert "  launches 4.4 ms ahead  GPU idle 6" in progress(on_gpu("data_starved"))
    assert "launches" not in progress(on_gpu("transfer"))  # not known there
    assert " idle" not in progress(on_gpu("gpu_bound"))


def test_bounds_of_old_logs_with_few_steps_are_not_taken_for_bounds() -> None:
    """Their events do not bound what the CPU launches late: see ``GpuTime.bounded``."""
    old = one_process(records.steps(1.0, {"forward": 100}, count=4))
    spans = [GpuPhase("forward", 400_000_000, 40_000_000, 0)]
    old.add(GpuTime(t=1.0, pid=100, window_s=1.0, device=0, steps=4, total_ns=400_000_000, phases=spans, leads=[]))
    forward = parts_of(old.over("recent")).phases[1]
    assert (forward.gpu_idle_ms_low, forward.gpu_idle_ms_high) == (pytest.approx(10.0), pytest.approx(100.0))
