"""What is in a snapshot of a session, the table of metrics, and how they are exposed."""

import json
import re
import shutil
import subprocess
import threading
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from bench.metrics_cost import text_of
from tests.session import records
from tests.views.metrics.figures import FINDINGS, PHASES, figures, whole_session
from tests.views.streams import gpu
from tests.waiting import until
from tuimon.records import Exit, PhaseTime
from tuimon.session.session import Session
from tuimon.views.prometheus import METRICS, Metric, RankLabels, Snapshots, take
from tuimon.views.report.report import report_of
from tuimon.views.report_types import STEP_BOUNDS


def test_a_whole_run_has_every_metric() -> None:
    session = whole_session()
    lines = records.frames(("/p/train.py", 3, "main", "x = get()", True), ("/p/loss.py", 9, "f", "y", True), first=2)
    made = records.steps(13.0, {"between": 40, "backward": 60}, first_index=120, pid=4242)
    seen = records.stacks(13.0, ([2], 30), ([3], 3), pid=4242)
    records.extend(session, made, lines, seen, Exit(t=14.0, pid=100, exit_code=3))
    found = figures(session, FINDINGS) | figures(uneven_ranks()) | figures(whole_session())
    assert {EXPOSED[name].name for name in found} == {metric.name for metric in METRICS}


@pytest.mark.parametrize(("interval_s", "is_there"), [(1.0, False), (60.0, True)])
def test_a_gpu_that_does_not_answer_for_three_windows_is_left_out(interval_s: float, is_there: bool) -> None:
    header = structs.replace(records.header(), interval_s=interval_s)
    session = records.session_of(header, gpu(5.0), records.process(t=60.0))
    assert any(name.startswith("hw_gpu") for name in figures(session)) is is_there


def uneven_ranks(windows: int = 12) -> Session:
    """Two ranks on CPUs: rank 1 takes longer for its forward pass, and rank 0 sleeps as long in backward."""
    session = records.session_of(records.header(), *(records.process(100 + rank, rank=rank) for rank in (0, 1)))
    for pid, forward, busy in ((100, 20, 0.6), (101, 60, 1.0)):
        used = [records.thread(float(t), busy, 0.0, pid) for t in range(1, windows + 1)]
        records.extend(session, used, records.loop(windows, {"forward": forward, "backward": 100 - forward}, pid=pid))
    return session


def test_figures_of_a_rank() -> None:
    found = figures(whole_session(), FINDINGS)
    assert found["tuimon_ranks"] == {(): 2}
    assert found["tuimon_steps_total"] == {("0",): 120, ("1",): 120}
    assert found["tuimon_phase_seconds_total"]["1", "data"] == pytest.approx(120 * 0.062)
    assert found["tuimon_phase_share_ratio"]["0", "data"] == pytest.approx(0.62)
    assert found["tuimon_step_recent_seconds"]["0", "median"] == pytest.approx(0.1, rel=0.005)
    assert found["tuimon_last_step_time_seconds"]["0",] == 1.7e9 + 12
    assert found["tuimon_launch_lead_seconds"]["0", "backward begin"] == pytest.approx(300e-6)
    assert found["tuimon_process_cpu_ratio"]["0",] == 1.5
    assert found["tuimon_loader_workers_busy_ratio"] == {(r, "train"): pytest.approx(0.8) for r in "01"}
    assert found["tuimon_loader_none_ready_ratio"]["0", "train"] == pytest.approx(0.6)
    assert found["hw_gpu_memory_limit_bytes"]["GPU-1", "1"] == 80 * 1024**3
    assert found["tuimon_gpu_throttled_ratio"] == {
        (f"GPU-{i}", str(i), "power cap"): pytest.approx(0.25) for i in (0, 1)
    }
    assert found["tuimon_finding"] == {("input_bound", "critical"): 1, ("side_work", "warning"): 1}
    assert found["tuimon_finding_speedup_ratio"]["input_bound",] == 2.13
    assert found["tuimon_checkpoints_total"] == {("0",): 3, ("1",): 3}
    assert found["tuimon_checkpoint_size_bytes_total"]["0",] == 150 << 20
    assert found["tuimon_checkpoint_time_seconds_total"]["1",] == pytest.approx(3.0)
    assert found["tuimon_checkpoint_info"] == {("0", "nfs4"): 1, ("1", "nfs4"): 1}


def test_counters_never_fall_while_the_view_of_the_warm_up_changes() -> None:
    """The first window leaves the figures of the whole run once it turns out to be warm-up; pauses move in and out."""
    session = records.one_process()
    windows = [
        records.steps(1.0, {"backward": 900}, count=1),
        records.steps(2.0, {}, count=0),
        records.steps(3.0, PHASES, count=10, first_index=1, eval_count=3),
        records.steps(4.0, {}, count=0),
        records.steps(5.0, PHASES, count=10, first_index=11),
    ]
    before, counts = 0.0, []
    for window in windows:
        session.add(window)
        found = figures(session)
        assert found["tuimon_step_seconds_sum"]["0",] >= before
        before = found["tuimon_step_seconds_sum"]["0",]
        counts.append(found["tuimon_step_seconds_count"]["0",])
    assert counts == [1, 1, 11, 11, 21]
    assert before == pytest.approx(0.9 + 20 * 0.1)


def test_labels_are_bounded_whatever_a_log_holds() -> None:
    session = records.one_process()
    names = [PhaseTime(f"made up {n}", 1_000_000) for n in range(500)]
    session.add(structs.replace(records.steps(1.0, {"backward": 10}), phases=[PhaseTime("data", 5), *names]))
    assert list(figures(session)["tuimon_phase_seconds_total"]) == [("0", "data")]


@pytest.mark.parametrize(
    ("ranks", "labels"),
    [((None,), ["0"]), ((None, None), ["0", "1"]), ((0, 1), ["0", "1"]), ((3, 3), ["3", "3.1"]), ((-1,), ["-1"])],
)
def test_each_live_process_has_a_label_of_its_own(ranks: tuple[int | None, ...], labels: list[str]) -> None:
    processes = [records.process(pid, rank=rank) for pid, rank in enumerate(ranks, 100)]
    session = records.session_of(records.header(), processes)
    assert [label for label, _ in RankLabels().of(report_of(session, []).ranks)] == labels


def test_a_snapshot_is_taken_only_when_somebody_wants_one() -> None:
    session, snapshots = whole_session(1), Snapshots()
    snapshots.offer(session, ())
    assert snapshots.fresh(timeout_s=0.0) is None  # nobody had asked: nothing was taken
    snapshots.offer(session, ())
    first = snapshots.fresh(timeout_s=0.0)
    assert first is not None  # now it is wanted again, and until it comes this is the latest
    session.add(records.steps(13.0, PHASES, first_index=120, pid=4242))
    received = []
    waiting = threading.Thread(target=lambda: received.append(snapshots.fresh(timeout_s=60)))
    waiting.start()
    until(lambda: (snapshots.offer(session, ()), received)[1])
    waiting.join()
    assert received[0] is not first


def test_a_scrape_in_mid_update_is_of_one_moment() -> None:
    """Another thread reads snapshots while records are folded: sums and counts always belong together."""
    session, snapshots = records.one_process(), Snapshots()
    seen: list[tuple[float, float]] = []
    enough = threading.Event()

    def scrape() -> None:
        while len(seen) < 50:
            snapshot = snapshots.fresh(timeout_s=60)
            samples = [sample for family in snapshot or () for sample in family.samples]
            steps, phases_s = (
                sum(sample.value for sample in samples if sample.name == name)
                for name in ("tuimon_steps_total", "tuimon_phase_seconds_total")
            )
            if steps:
                seen.append((steps, phases_s))
        enough.set()

    thread = threading.Thread(target=scrape)
    thread.start()
    t = 0
    while not enough.is_set():
        t += 1
        session.add(records.steps(float(t), {"backward": 100}, first_index=10 * (t - 1)))
        snapshots.offer(session, ())
    thread.join()
    assert all(seconds == pytest.approx(steps * 0.1) for steps, seconds in seen)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"(tuimon|hw)(_[a-z]+[0-9]*)+", metric.name)
    assert metric.help.endswith(".") and metric.help[0].isupper() | metric.help[0].isdigit()
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    labels = metric.all_labels
    assert len(set(labels)) == len(labels)
    assert all(re.fullmatch(r"[a-z_]+|UUID", label) for label in labels)
    assert not {"file", "line", "function", "pid", "path", "quantile", "le"} & set(labels)
    listed = ", ".join(f"`{label}`" for label in labels) or "–"
    row = f"| `{metric.name}` | {metric.kind} | {listed} | {metric.help} |"
    assert row in (DOCS / "metrics.md").read_text().splitlines(), row


# -- the dashboard and the page


DOCS = Path(__file__).resolve().parents[3] / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
#: What Prometheus adds to each scraped series, and to the buckets of histograms.
ADDED = {"instance", "job", "le"}
_NAME = re.compile(r"\b(?:tuimon|hw)_\w+")
_SELECTOR = re.compile(r"\b((?:tuimon|hw)_\w+)\{([^}]*)\}")
_BY = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def exposed() -> dict[str, Metric]:
    """Every series by name."""
    names = {metric.name: metric for metric in METRICS}
    for metric in METRICS:
        if metric.kind == "histogram":
            names |= {f"{metric.name}_{part}": metric for part in ("bucket", "sum", "count")}
            del names[metric.name]
    return names


EXPOSED = exposed()
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
VARIABLES = [variable["definition"] for variable in DASHBOARD["templating"]["list"] if "definition" in variable]


@pytest.mark.parametrize("expression", EXPRESSIONS + VARIABLES)
def test_metrics_and_labels_exist(expression: str) -> None:
    names = _NAME.findall(expression)
    assert names and set(names) <= set(EXPOSED)
    for name, matchers in _SELECTOR.findall(expression):
        asked = {matcher.partition("=")[0].rstrip("!~") for matcher in matchers.split(",")}
        assert asked <= {*EXPOSED[name].all_labels, *ADDED}
    known = {label for name in names for label in EXPOSED[name].all_labels}
    for labels in _BY.findall(expression):
        assert set(re.split(r"\s*,\s*", labels)) <= known | ADDED


def test_the_dashboard_hangs_together() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) > 20
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS))) <= variables


def text() -> str:
    return text_of(take(whole_session(), FINDINGS, RankLabels())).decode()


def test_the_parser_reads_back_what_was_measured() -> None:
    families = {family.name: family for family in text_string_to_metric_families(text())}
    steps = {sample.labels["rank"]: sample.value for sample in families["tuimon_steps"].samples}
    assert steps == {"0": 120.0, "1": 120.0}
    assert families["tuimon_step_seconds"].type == "histogram"
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in families["tuimon_step_seconds"].samples
        if sample.name.endswith("_bucket") and sample.labels["rank"] == "1"
    ]
    assert [bound for bound, _ in buckets] == [*STEP_BOUNDS, float("inf")]
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    assert buckets[-1][1] == 120
    power = families["hw_power_watts"].samples[0]
    assert power.labels == {"UUID": "GPU-0", "gpu": "0", "hw_type": "gpu"}


def test_text_from_outside_is_escaped() -> None:
    session = whole_session(1)
    assert session.header is not None
    session.add(structs.replace(session.header, run='a"b\\c\nd' * 100))
    written = text_of(take(session, (), RankLabels())).decode()
    info = [line for line in written.splitlines() if line.startswith("tuimon_run_info")]
    assert len(info) == 1
    family = next(f for f in text_string_to_metric_families(written) if f.name == "tuimon_run_info")
    assert family.samples[0].labels["run"] == ('a"b\\c\nd' * 100)[:128]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_mend() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
