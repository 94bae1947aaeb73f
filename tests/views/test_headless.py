"""Headless lines on literal sessions."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import termios

import pytest
from msgspec.structs import replace

from tests.gpu_simulator import sessions
from tests.session import records
from tests.session.records import extend, one_process, session_of
from tests.small_terminal import SmallTerminal
from tests.views.tui.running_app import texts
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.records import Exit, Gpu, Notice, Place
from tuimon.session.sampling import SamplerTable
from tuimon.session.session import Session
from tuimon.session.steps import StepSummary
from tuimon.views.headless import HeadlessView, progress, summary_lines
from tuimon.views.tui.panes.verdict_pane import VerdictPane, verdict_lines
from tuimon.views.words import ended_text

INPUT_BOUND = Finding(
    rule="input_bound",
    severity="critical",
    headline="62 % of every step waits for data: augment()\x1b[1m transforms.py:31",
    fixes=(Fix("num_workers=2 -> 8"),),
    where=(Place("transforms.py", 31, "augment"),),
)
PHASES = {"data": 62, "forward": 11, "backward": 16, "optimizer": 6, "other": 5}


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


def test_how_it_ended() -> None:
    assert ended_text(Exit(t=0.0, pid=1, exit_code=137, signal="SIGKILL")) == "killed by SIGKILL"
    end = Exit(t=0.0, pid=1, exit_code=1, last_line="KeyError: 1", file="/x/train.py", line=12, function="main")
    assert ended_text(end) == "ended with exit code 1 at main() train.py:12: KeyError: 1"
    attached = replace(end, exit_code=None)
    assert ended_text(attached) == "ended by an error at main() train.py:12: KeyError: 1"
    assert ended_text(Exit(t=0.0, pid=1, exit_code=None)) == "the process has ended"


def test_a_fast_loop_of_which_some_steps_are_timed() -> None:
    windows = [
        records.steps(t, {"forward": 0.4}, count=1000, first_index=1000 * t, timed=125, open_phase="forward")
        for t in range(1, 5)
    ]
    assert "(1 of 8 steps timed)" in progress(records.session_of(records.header(), *windows))


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
    shown = [row for row in texts(verdict_lines(VerdictPane().collect(whole, []), 110)) if "TIP" in row]
    assert shown == ([f" ┃ TIP  {tip} tuimon run ENV/bin/python train.py"] if tip else [])


def test_after_the_end_a_rate_that_is_only_estimated_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SamplerTable, "steps_per_second", lambda self, pid, now_s: 2.0)
    whole = one_process(Exit(t=5.0, pid=100, exit_code=0), markers=False)
    assert whole.shown() is whole.over("whole")
    assert whole.shown().steps(100) == StepSummary(0, 2.0, None, None, None, None, 0, estimated=True)


def on_gpu(kind: str) -> Session:
    return session_of(*sessions.records(kind))


def test_headless_names_the_lead_and_the_idle_share() -> None:
    assert " lead 4.4 ms idle 6" in progress(on_gpu("data_starved"))
    assert " lead" not in progress(on_gpu("transfer"))  # not known there
    assert " idle" not in progress(on_gpu("gpu_bound"))
