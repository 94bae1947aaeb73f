"""The HTML report: one self-contained page that says what the JSON says, and its charts."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from importlib.resources import files
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from rich.console import Console

from tests.gpu_simulator import sessions
from tests.recorded_logs import log_path
from tests.session import records
from tests.session.records import one_process, steps
from tests.sources.log.literal_log import write
from tuimon.records import Exit, Gpu, Loader, LoaderFacts, Record, TracedSync, TracedWork, TraceTaken
from tuimon.views.report.page import MeanStep, chart_of
from tuimon.views.report.page import mean_steps as mean_steps_of
from tuimon.views.report.write import standalone_svg

PHASES = {"data": 62, "forward": 11, "backward": 16, "optimizer": 6, "other": 5}
HOSTILE = "<script>alert(1)</script>\x1b[31m\x07\u202e"
_VOID = {"meta", "br", "img", "link", "hr"}


class Checked(HTMLParser):
    """Fails on tags that do not nest; keeps what the asserts ask for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.parts: list[str] = []
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.labels: list[str] = []
        self.curves = 0
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.parts += [value for name, value in attrs if name == "data-part"]
        if tag != "a":  # what a reader may follow loads nothing
            self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset")]
        self.labels += [value for name, value in attrs if name == "aria-label"]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.curves += ("class", "curve") in attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and "td" in self.open:
            self.rows[-1][-1] += data


def log_of(path: Path, told: Iterable[Record]) -> str:
    return str(write(path, *told))


def run(windows: int = 60, command: str = "train.py", source: str = "x = load(i)") -> list[Record]:
    header = replace(records.header(), command=["python", command])
    frames = records.frames(("/a/train.py", 7, "main", source, True), t=1.0)
    made = records.stacks(2.0, ([0], 20)), *records.loop(windows, PHASES)
    return [header, records.process(), frames, *made, Exit(t=windows + 1.0, pid=100, exit_code=0)]


def test_parts_of_the_wall_time_have_a_colour_of_their_own_or_share_the_grey_one(page_of):
    page = page_of(str(log_path("eval_every_few_steps")))
    parts = "training 26 %", "evaluation 53 %", "import 6 %, set-up 15 %"
    dots = zip(("forward", "eval", "other"), parts, strict=True)
    legend = "".join(f'<span><i class="dot {colour}"></i>{text}</span>' for colour, text in dots)
    assert f'<div class="legend">{legend}</div>' in page


def test_how_far_launches_run_ahead_has_a_row_for_each_boundary(page_of):
    page = page_of(str(log_path("h100_masked_loss")))
    rows = re.findall(r"<tr><td>(?:fetch|backward|optimizer) \w+</td>((?:<td class=\"n\">[^<]+</td>)+)</tr>", page)
    assert rows and all(row.count("<td") == 4 for row in rows)


def test_how_a_run_ended_stands_with_its_place_outside_the_exception(tmp_path, page_of):
    end = Exit(t=61.0, pid=100, exit_code=3, last_line="KeyError: 1", file="/a/train.py", line=7, function="main")
    page = page_of(log_of(tmp_path / "run.jsonl", [*run()[:-1], end]))
    assert "; ended with exit code 3 at main() train.py:7</p>" in page
    assert '<pre tabindex="0">KeyError: 1</pre>' in page


def test_figures_are_those_of_the_json(tmp_path, call, page_of):
    log = log_of(tmp_path / "run.jsonl", run())
    page = Checked(page_of(log))
    report = json.loads(call("report", log, "--format", "json").out)
    shares = {row[0]: (row[1], row[2]) for row in page.rows if row and row[0] in PHASES}
    assert shares == {
        phase["name"]: (f"{phase['cpu_ms_per_step']:.1f} ms", f"{phase['share'] * 100:.0f} %")
        for phase in report["phases"]
    }
    assert f"{report['steps']['count']} steps" in page.text
    assert report["findings"][0]["headline"] in page.text
    assert report["findings"][0]["action"] in page.text
    assert {"verdict", "findings", "phases", "history", "flame", "unjudged", "environment"} <= set(page.parts)


def test_its_title_is_the_verdict_which_it_shows_once(tmp_path, page_of):
    page = page_of(log_of(tmp_path / "run.jsonl", run()))
    (title,) = re.findall("<title>(.*?)</title>", page)[:1]
    assert title.startswith("INPUT-BOUND: 62 % of each step waits for data") and title.endswith("python train.py")
    body = Checked(page.partition("</head>")[2].rpartition("</html>")[0]).text
    assert body.count("62 % of each step waits for data") == 1
    assert body.count("Fix:") == body.count("Gain:") == 1


def test_what_the_workers_do_has_a_graph_of_its_own(tmp_path, page_of):
    worker = records.process(201, "worker", ppid=100)
    frames = records.frames(("/a/data.py", 9, "smooth", "convolve(image)", True), first=1, t=1.0)
    stacks = records.stacks(2.0, ([1], 20), pid=201)
    with_worker = [*run()[:-1], worker, frames, stacks, run()[-1]]
    text = Checked(page_of(log_of(tmp_path / "run.jsonl", with_worker))).text
    assert "smooth (data.py:9): 100 %, 20 samples" in text.partition("What the DataLoader workers do")[2]
    assert "What the DataLoader workers do" not in page_of(log_of(tmp_path / "alone.jsonl", run()))


def test_what_was_not_measured_has_no_column_and_no_sentence(tmp_path, page_of):
    """Without a GPU, and of a loader without workers, rows of dashes tell nothing."""
    facts = LoaderFacts(dataset="Photos", kind="map", workers=0, batch_size=8)
    loader = Loader(t=2.0, pid=100, number=1, window_s=1.0, role="train", fetches=9, wait_ns=10**7, facts=facts)
    page = Checked(page_of(log_of(tmp_path / "run.jsonl", [*run()[:-1], loader, run()[-1]])))
    assert "Photos" in page.text
    assert {len(row) for row in page.rows if row and row[0] in PHASES} == {3}  # name, time, share
    assert "batches ready" not in page.text and ", prefetch" not in page.text
    assert "makes batches" in page.text and "hottest line" not in page.text


def test_it_needs_nothing_but_itself(tmp_path, page_of):
    page = Checked(page_of(log_of(tmp_path / "run.jsonl", run())))
    assert not page.links
    assert not {"link", "img", "iframe"} & set(page.tags)
    assert page.tags.count("script") == 1
    style, script = (files("tuimon.views.report").joinpath(name).read_text() for name in ("style.css", "zoom.js"))
    assert not re.search(r"https?:|url\(|@import|\beval\(|innerHTML|fetch\(", style + script)


def test_text_from_outside_is_data_and_only_its_own_script_may_run(tmp_path, page_of):
    text = page_of(log_of(tmp_path / "run.jsonl", run(command=HOSTILE, source=HOSTILE)))
    page = Checked(text)
    assert page.tags.count("script") == 1
    assert "<script>alert(1)</script>" in page.text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@pytest.mark.parametrize("kind", ["launch_bound", "gpu_bound"])
def test_a_run_on_a_gpu_tells_its_launch_lead(kind, tmp_path, page_of):
    page = Checked(page_of(log_of(tmp_path / "gpu.jsonl", sessions.records(kind))))
    assert "lead" in page.parts
    table = [row for row in page.rows if row and row[0] == "forward" and len(row) == 5]
    assert table[0][4].endswith(" ms")
    assert "GPU idle over the whole run, as a share of the steps' time: " in page.text and "GPU span" in page.text
    assert table[0][3] == {"launch_bound": "unknown", "gpu_bound": "0 ms"}[kind]


def test_gpus_in_use_have_a_curve_for_each_figure(tmp_path, page_of):
    gpu = {"pid": 0, "index": 0, "uuid": sessions.UUID, "name": "H100", "util_ratio": 0.5, "power_w": 300.0}
    told = [*sessions.records("gpu_bound"), *(Gpu(t=1000.0 + t, **gpu) for t in range(3))]
    page = Checked(page_of(log_of(tmp_path / "gpu.jsonl", told)))
    assert "gpus" in page.parts
    names = {"util", "SM", "tensor", "DRAM", "memory", "power"}
    assert names & set(page.labels) == {"util", "power"}  # what was not measured has none
    assert page.curves == 2
    assert "util 50 % to 50 %" in page.text and "power 300 W to 300 W" in page.text
    assert "°C" not in page.text
    assert "300 W" in page.text


def test_a_trace_has_its_kernels_waits_and_operators(tmp_path, page_of):
    work = TracedWork("aten::mm<1>", "forward", 30, 10_000_000, 5_000_000, "train.py:42")
    syncs = [
        TracedSync("cudaStreamSynchronize", "aten::nonzero", "forward", "train.py:8", 80, 5_000_000),
        TracedSync("cudaDeviceSynchronize", "", "other", "train.py:46", 5, 2_000_000),
    ]
    trace = TraceTaken(t=12.5, pid=100, begin_s=11.0, end_s=11.5, first_step=110, steps=5, wanted=5, file="t.json.gz",
                       operators=[work], kernels=[work], syncs=syncs,
                       gpu_span_ns=100, gpu_busy_ns=90, gpu_computing_ns=60)  # fmt: skip
    page = Checked(page_of(log_of(tmp_path / "run.jsonl", [*run()[:-1], trace])))
    assert page.parts.count("trace") == 1
    for text in (
        "Trace of steps 110 to 114 of process 100",
        "GPU idle 10 %, only collectives run for 30 %",
        "Operator aten::mm<1>: 2.0 ms, its kernels 1.0 ms, 30 times in all, forward, at train.py:42",
        "The CPU waited 1.0 ms for the GPU in aten::nonzero, 80 times in all, at train.py:8",
        "The CPU waited 0.40 ms for the GPU in cudaDeviceSynchronize, 5 times in all, at train.py:46",
    ):
        assert text in page.text
    assert "t.json.gz" in page.text


def test_short_and_empty_logs(tmp_path, page_of):
    empty = Checked(page_of(log_of(tmp_path / "empty.jsonl", [records.header()])))
    assert "No training step was seen." in empty.text
    assert "history" not in empty.parts
    assert "Markers dropped: –" in empty.text
    short = Checked(page_of(log_of(tmp_path / "short.jsonl", run(windows=3))))
    assert {"phases", "history"} <= set(short.parts)


def test_several_logs_are_sections_of_one_page(tmp_path, page_of):
    logs = [log_of(tmp_path / f"{name}.jsonl", run(windows=5, command=name)) for name in ("one.py", "two.py")]
    page = Checked(page_of(*logs))
    assert page.parts.count("verdict") == 2
    assert page.tags.count("html") == 1
    assert "one.py" in page.text
    assert "two.py" in page.text


USUAL = {"data": 20, "forward": 30, "backward": 40, "optimizer": 8, "other": 2}
SLOW = {**USUAL, "data": 200}


def mean_steps(*told: object) -> list[MeanStep]:
    return mean_steps_of(one_process(*told).over("whole").focus)


def test_a_day_has_no_more_bars_and_the_same_steps():
    day = [steps(10.0 * n, SLOW if 3000 <= n < 3600 else USUAL, first_index=n, window_s=10.0) for n in range(1, 8641)]
    found = mean_steps(*day)
    assert 120 <= len(found) <= 240
    length_s = 86_400 / len(found)
    slow = [each for each in found if each.ms[0] > 150]
    assert slow[0].begin_s == pytest.approx(30_000, abs=length_s)
    assert slow[-1].end_s == pytest.approx(36_000, abs=2 * length_s)


def test_what_markers_cannot_split_counts_as_forward_without_samples():
    (row,) = mean_steps(steps(1, {"between": 50, "backward": 40}))
    assert row.ms == pytest.approx([0, 50, 40, 0, 0])


def test_each_stretch_has_a_tooltip_with_its_figures():
    chart = chart_of(mean_steps(*(steps(n, USUAL, first_index=n) for n in range(1, 5))))
    assert [(x, width) for x, width, _ in chart["titles"]] == [(250.0 * at, 250.0) for at in range(4)]
    assert chart["titles"][1][2].startswith("1.0s to 2.0s: 100 ms a step: data 20.0 ms, forward 30.0 ms")


def test_without_a_step_there_is_no_chart():
    assert chart_of(mean_steps(steps(1, {}, count=0))) is None and chart_of([]) is None


def test_words_places_and_colours_of_a_picture_stay() -> None:
    console = Console(width=40, record=True, file=StringIO())
    console.print("one [red]two  three[/red] <four>", markup=True)
    console.print("five")
    svg = console.export_svg(title="a title")
    before, after = ElementTree.fromstring(svg), ElementTree.fromstring(standalone_svg(svg))

    def pieces(root: ElementTree.Element) -> list[tuple[str, str | None, str | None]]:
        found = [
            (node.text or "", node.get("x"), node.get("y")) for node in root.iter("{http://www.w3.org/2000/svg}text")
        ]
        return [piece for piece in found if piece[0].strip("\N{NO-BREAK SPACE}\n ")]

    assert "two\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}three" in [text for text, _, _ in pieces(after)]
    assert pieces(after) == pieces(before)
    assert len(list(after.iter())) < len(list(before.iter()))
