"""States, nodes, GPUs, findings and numbers in a few words."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from msgspec import structs

from tests.fuzz.hostile import CONTROLS, STRINGS
from tests.views import streams
from tests.views.tui.gpu_rows import HOPPER, OLD, instance, number, replace
from tuimon.diagnosis.finding import Finding, Fix, FixJson
from tuimon.interval import Interval
from tuimon.records import Node, Place
from tuimon.session.gpus import GpuMeans
from tuimon.session.phase_table import PhaseRow
from tuimon.session.session import Session
from tuimon.session.state import RunState
from tuimon.session.steps import StepSummary
from tuimon.text import at, code_place, kernel_name, plain, whole_number
from tuimon.views import format as people
from tuimon.views.finding_text import (
    NO_FINDING,
    NO_TRAINING,
    TOO_FEW_STEPS,
    fix_text,
    gain_text,
    headline_text,
    none_found,
)
from tuimon.views.format import wrap
from tuimon.views.headless import summary_lines
from tuimon.views.json_text import json_text
from tuimon.views.report.page import as_html, html_page
from tuimon.views.report.report import report_of
from tuimon.views.report.write import text_report
from tuimon.views.report_types import Phase, filled
from tuimon.views.run_text import gpu_text, nodes_text, state_text

PLACE = Place("/home/me/train.py", 26, "main", "evaluate(model)")


@pytest.mark.parametrize(
    ("for_s", "text"),
    [
        (None, "no step for 14s: in eval at main() train.py:26"),
        (0.04, "no step for 14s: in eval at main() train.py:26"),
        (0.05, "no step for 14s: in eval at main() train.py:26 for 0.1s"),
        (9.0, "no step for 14s: in eval at main() train.py:26 for 9.0s"),
        (13.9, "no step for 14s: in eval at main() train.py:26"),
    ],
)
def test_how_long_something_goes_on_is_told_once_it_has(for_s, text):
    assert state_text(RunState("between_steps", 14.0, "in eval", for_s, PLACE)) == text


# -- the nodes of a run that are not well, in a few words


def node(number, state="writing", behind_s=0.0, **more):
    host = f"n{number}"
    return Node(t=1.0, pid=0, number=number, host=host, cpu_count=8, state=state, behind_s=behind_s, **more)


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([node(0), node(7, "late", 28.0)], "n7 silent for 28s"),
        ([node(0), node(7, "late", 28.0), node(8, "stopped", 90.0)], "2 of 3 nodes silent for 1m30s"),
        ([node(0), node(1, "ended", exit_code=1)], "n1 failed"),
        ([node(0), node(1, "ended", exit_code=1), node(2, "late", 20.0)], "n2 silent for 20s, n1 failed"),
        ([node(0, "ended", exit_code=1), node(1, "ended", exit_code=1)], ""),
    ],
)
def test_a_node_that_writes_nothing_or_failed_is_named_and_several_are_counted(nodes, text):
    assert nodes_text(nodes) == text


# -- the GPUs in a few words


BUSIER = (OLD, replace(OLD, uuid="x", util_ratio=0.97))


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ([HOPPER], "GPU 100 % · tensor 12 %"),
        ([OLD], "GPU 37 %"),
        (BUSIER, "2 GPUs 37–97 %"),
        (number(8), "8 GPUs 100 % · tensor 12 %"),
        ([HOPPER, *number(3, OLD, used_by_run=False)], "GPU 100 % · tensor 12 %"),
        (
            [replace(HOPPER, util_ratio=None, is_divided=True), instance("1g.10gb", "MIG-a")],
            "GPU SM 71 % · tensor 12 %",
        ),
        ([replace(HOPPER, means=GpuMeans(util_ratio=0.16, tensor_ratio=0.0))], "GPU 16 % · tensor 0 %"),
        ([replace(OLD, used_by_run=False)], "GPU 37 %"),
        ([replace(OLD, stale_s=12.0)], ""),
        ([OLD, replace(OLD, uuid="x", stale_s=12.0)], "2 GPUs 37 %"),
        ([replace(OLD, util_ratio=None)], ""),
        ([], ""),
    ],
)
def test_of_those_that_the_run_uses(gpus, text):
    assert gpu_text(gpus) == text


@pytest.mark.parametrize(
    ("estimated", "low", "high", "text"),
    [
        (1.9, 1.2, 2.5, "1.2x to 2.5x faster"),
        (1.2, 1.2, 1.21, "up to 1.2x faster"),
        (4.0, 2.8, None, "at least 2.8x faster"),
        (None, None, 2.5, "not certain, up to 2.5x faster"),
        (None, None, None, ""),
        (1.5, 1.0, 1.5, "up to 1.5x faster"),
        (1.05, 1.05, 1.05, "up to 1.05x faster"),
    ],
)
def test_the_gain_of_a_fix_is_a_range(estimated, low, high, text):
    fix = FixJson("do", estimated, low, high)
    assert gain_text(fix) == text and fix_text(fix) == (f"do ({text})" if text else "do")


def test_a_headline_has_the_first_place_once():
    places = (Place("/a/net.py", 16, "forward"), Place("/a/net.py", 20, "backward"))
    assert headline_text(Finding("GPU idle 84 %", where=places)) == "GPU idle 84 %, at forward() net.py:16"
    assert headline_text(Finding("it waits at net.py:16", where=places)) == "it waits at net.py:16"
    hostile = (Place("/a/net\x07.py", 16, "<module>"),)
    assert headline_text(Finding("GPU idle 84 %", where=hostile)) == "GPU idle 84 %, at net.py:16"
    assert headline_text(Finding("steps take\nlonger")) == "steps take longer"


@pytest.mark.parametrize(
    ("count", "phases", "verdict"),
    [
        (0, [], TOO_FEW_STEPS),
        (2, ["forward"], TOO_FEW_STEPS),
        (3, ["forward"], f"{NO_FINDING} The longest phase of a step is forward (100 %)."),
        (0, ["forward"], f"{NO_FINDING} The longest phase of a step is forward (100 %)."),  # inferred from samples
        (3, ["other"], NO_TRAINING),
    ],
)
def test_no_finding_is_a_verdict_on_more_than_the_first_steps(count, phases, verdict):
    report = report_of(Session(), [], "run.jsonl")
    report.steps = StepSummary(count, None, None, None, 0)
    report.phases = [
        filled(Phase, PhaseRow(name, 1.0, None), gpu_ms_per_step=None, gpu_idle_ms_per_step=None) for name in phases
    ]
    assert none_found(report) == verdict


# -- a fix in each view


FINDING = structs.replace(
    streams.INPUT_BOUND,
    fixes=(
        *streams.INPUT_BOUND.fixes,
        Fix("halve [b]the image", 1.5, Interval(1.0, 1.5)),
        Fix("buy a disk"),
        Fix("wait longer"),
    ),
)
HALVE = "halve [b]the image (up to 1.5x faster)"


def test_reports():
    session = Session()
    report = report_of(session, [FINDING], "run.jsonl")
    assert [fix.low for fix in report.findings[0].fixes] == [2.13, 1.0, None, None]
    text = text_report(report)
    assert f"  Or: {HALVE}\n  Or: buy a disk\n" in text and "wait longer" not in text
    page = as_html([html_page(session, [FINDING])])
    assert f"<b>Or:</b> {HALVE}" in page and "<b>Or:</b> buy a disk" in page and "<b>Or:</b> wait longer" in page


def test_the_summary_of_a_headless_run():
    assert summary_lines(Session(), [FINDING])[-3:] == [
        f"- fix: {FINDING.action} (up to 2.1x faster)",
        f"- or: {HALVE}",
        "- or: buy a disk",
    ]


#: What each function shows of a figure.
FIGURES = {
    people.number: {None: "–", 0: "0", 0.0004: "<0.001", 0.0042: "0.004", 0.38: "0.38", 7.14: "7.1", 41.52: "41.5"},
    people.percent: {None: "–", 0.0: "0 %", 0.001: "<1 %", 0.005: "<1 %", 0.62: "62 %", 1.5: "150 %"},
    people.duration: {None: "–", 0.44: "0.4s", 9.96: "10s", 59.6: "1m00s", 3599.7: "1h00m", 273600: "3d04h"},
    people.ms: {None: "–", 41.52: "41.5 ms", 99.97: "100 ms", 12_345: "12.3 s"},
    partial(people.ms, unit=False): {12_345: "12345"},
    people.size: {None: "–", 512: "512 B", 62 << 20: "62 MiB", int(21.4 * 2**30): "21.4 GiB"},
    people.clock: {None: "–", 83.9: "00:01:23"},
    people.rate: {None: "–", 14.9: "14.9 steps/s", 0.24: "4.2 s/step"},
    people.count: {None: "–", 12345: "12,345"},
    people.watt: {None: "–"},
    people.timed_steps: {1.0: "", 0.995: "", 0.8: "80 % of the steps timed", 1 / 13: "1 of 13 steps timed"},
}


@pytest.mark.parametrize(
    ("show", "value", "shown"), [(show, *row) for show, rows in FIGURES.items() for row in rows.items()]
)
def test_figures(show: Callable[[float | None], str], value: float | None, shown: str) -> None:
    assert show(value) == shown


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "shown"),
    [
        (6.31, 25.4, "6.3 to 25.4 ms"),
        (0.0, 25.4, "up to 25.4 ms"),
        (25.41, 25.42, "25.4 ms"),
        (0.0, 0.0, "0 ms"),
        (0.0, 1e-4, "<0.001 ms"),
        (500.0, 12_345, "0.50 to 12.3 s"),
    ],
)
def test_times_between_bounds(low_ms: float, high_ms: float, shown: str) -> None:
    assert people.ms_range(low_ms, high_ms, " to ") == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a[bold]b", "a[bold]b"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x1bPq#0\x1b\\x", "x"),
        ("a\tb\r\nc", "a b  c"),
        ("\x00\x07\x7f\x9b31mx", "31mx"),
        ("abc\u202egnp.exe", "abcgnp.exe"),
        ("\udcff ü 日本", " ü 日本"),
        ("\x1b", ""),
    ],
)
def test_text_from_outside(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize("text", ["", "-1", "1.0", "1_0", " 1", "\u00b2", "\u0663", "1" + 18 * "0", 5000 * "9"])
def test_text_that_is_no_number(text: str) -> None:
    assert whole_number(text) is None


def test_places() -> None:
    assert code_place(Place("/a/b/train.py", 44, "main")) == "train.py:44"
    assert code_place(Place("/a/\x1b[31mx.py", 0, "main")) == "x.py"
    assert at(Place("/a/b/train.py", 44, "main")) == "main() train.py:44"
    assert at(Place("/a/b/train.py", 44, "<module>")) == "train.py:44"


# -- plain text in lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("the GPU waits 91 % of it", ["the GPU waits", "  91 % of it"]),
        ("a step takes 12 ms, or 1.5 GiB", ["a step takes", "  12 ms, or", "  1.5 GiB"]),
        ("at /home/somebody/src/train.py:31 main", ["at", "  /home/somebody/src/train.py:31", "  main"]),
        ("3 steps/s", ["3 steps/s"]),
        ("  fix: set num_workers=2 now", ["  fix: set", "    num_workers=2", "    now"]),
        ("", [""]),
    ],
)
def test_a_line_is_broken_at_spaces_but_not_before_a_unit(text, lines):
    assert wrap(text, 15) == lines


# -- JSON on a terminal


@pytest.mark.parametrize("indent", [None, 2])
def test_json_holds_no_raw_control_character_and_says_the_same(indent: int | None) -> None:
    content = {"\x9b31m": list(STRINGS)}
    text = json_text(content, indent=indent)
    assert not CONTROLS.search(text)
    assert json.loads(text) == content


@pytest.mark.parametrize(
    ("name", "shown", "in_40"),
    [
        ("sm80_gemm_tn", "sm80_gemm_tn", "sm80_gemm_tn"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("ncclDevKernel_AllReduce_Sum_f32(Args<4096ul>)",) + 2 * ("ncclDevKernel_AllReduce_Sum_f32",),
        (
            "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float…",
            "reduce_kernel<128, 4, ReduceOp<float, func_wrapper_t<…>>>",
            "reduce_kernel<128, 4, ReduceOp<float, …>>",
        ),
        (
            "void at::native::(anonymous namespace)::indexing<at::native::sum<float>, 4>(float*, int)",
            "indexing<sum<float>, 4>",
            "indexing<sum<float>, 4>",
        ),
        ("gemm_" + 50 * "n", "gemm_" + 50 * "n", "gemm_" + 34 * "n" + "…"),
    ],
)
def test_kernels_are_cut_between_the_arguments_of_their_template(name, shown, in_40):
    assert kernel_name(name) == shown and kernel_name(shown) == shown
    assert kernel_name(name, 40) == in_40
