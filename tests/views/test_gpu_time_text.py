"""GPU time in report, headless and export, of simulated trainings."""

import json
import re

import pytest

from tests.gpu_simulator.sessions import records, simulated
from tests.session.records import header, process, session_of, steps
from tests.views.traces import trace_events
from tuimon.records import Gpu, GpuPhase, GpuTime
from tuimon.views.gpu_idle import idle_bounds, with_idle_bounds
from tuimon.views.headless import progress
from tuimon.views.report.summary import report_of
from tuimon.views.report.text import text_report


def folded(kind):
    return session_of(*records(kind))


def test_the_report_tells_gpu_time_of_each_phase():
    training, _ = simulated("data_starved")
    report = json.loads(json.dumps(report_of(folded("data_starved"), [], "run.jsonl")))
    step_ms = sum(phase["cpu_ms_per_step"] for phase in report["phases"])
    phases = {phase["name"]: phase for phase in report["phases"]}
    for name in ("data", "forward", "backward", "optimizer"):
        assert phases[name]["gpu_ms_per_step"] == pytest.approx(training.truth.share(name) * step_ms, rel=0.03), name
    assert phases["data"]["gpu_idle_ms_per_step"] == phases["data"]["gpu_ms_per_step"]
    assert phases["backward"]["gpu_idle_ms_per_step"] == 0


def launch_bound(paced_ratio):
    """A minute of steps of 100 ms: events leave so much of backward open, NVML shows a GPU that is busy for 16 %."""
    found = session_of(header(), process(100, gpu_uuids=["GPU-0"]))
    for t in range(1, 61):
        found.add(steps(float(t), {"forward": 30, "backward": 70}, first_index=10 * (t - 1)))
        spans = [GpuPhase("forward", 300_000_000, 0, 300_000_000)]
        spans.append(GpuPhase("backward", 700_000_000, 0, int(paced_ratio * 700_000_000)))
        found.add(GpuTime(t=float(t), pid=100, window_s=1.0, device=0, steps=10, total_ns=10**9, phases=spans, leads=[],
                          bounded=True))  # fmt: skip
        found.add(Gpu(t=t + 0.1, pid=0, index=0, uuid="GPU-0", name="H100", util_ratio=0.16, pcie_rx_bytes_per_s=0.0,
                      pcie_tx_bytes_per_s=0.0))  # fmt: skip
    return found


def phase_of(session, name):
    return next(phase for phase in report_of(session, [], "run.jsonl")["phases"] if phase["name"] == name)


def test_idle_time_between_bounds_is_no_number():
    """Of 100 ms the GPU idles 78 to 85 by NVML: 8 to 30 of forward, if all of backward may be idle."""
    forward = phase_of(launch_bound(1.0), "forward")
    assert forward["gpu_ms_per_step"] == pytest.approx(30.0)
    assert forward["gpu_idle_ms_per_step"] is None
    assert (forward["gpu_idle_ms_low"], forward["gpu_idle_ms_high"]) == (pytest.approx(10.0, abs=1.5), 30.0)
    alone = next(iter(report_of(launch_bound(1.0), [], "run.jsonl")["ranks"]))
    assert alone["phases"] == report_of(launch_bound(1.0), [], "run.jsonl")["phases"]


def test_bounds_of_old_logs_with_few_steps_are_not_taken_for_bounds():
    """Their events do not bound what the CPU launches late: see ``GpuTime.bounded``."""
    old = session_of(header(), process(100), steps(1.0, {"forward": 100}, count=4))
    spans = [GpuPhase("forward", 400_000_000, 40_000_000, 0)]
    old.add(GpuTime(t=1.0, pid=100, window_s=1.0, device=0, steps=4, total_ns=400_000_000, phases=spans, leads=[]))
    assert idle_bounds(with_idle_bounds(old.over("recent"), 100)[0].rows[1]) == (
        pytest.approx(10.0),
        pytest.approx(100.0),
    )


def test_the_text_report_names_the_span_and_what_of_it_is_idle():
    text = text_report(report_of(launch_bound(1.0), [], "run.jsonl"))
    rows = text[text.index("Spans on the GPU's clock") :].splitlines()
    (forward,) = [row for row in rows if row.startswith("  forward")]
    assert re.fullmatch(r"  forward +30\.0 ms  idle \d+\.\d to 30\.0 ms", forward)


def test_headless_names_the_lead_and_the_idle_share():
    assert " lead 4.4 ms idle 6" in progress(folded("data_starved"))
    assert " lead" not in progress(folded("transfer"))  # not known there
    assert " idle" not in progress(folded("gpu_bound"))


def test_perfetto_has_tracks_of_lead_and_idleness():
    events = trace_events(records("data_starved"))
    tracks = {}
    for event in events:
        tracks.setdefault(event["name"], []).append(event.get("args"))
    assert all(args["backward begin"] == pytest.approx(4.45, abs=0.1) for args in tracks["launches run ahead, ms"])
    assert all(0.4 < args["ratio"] < 0.9 for args in tracks["GPU idle, certain"])
    assert all(sum(args.values()) == pytest.approx(1) for args in tracks["GPU time by phase"])
    assert "launches run ahead, ms" not in {event["name"] for event in trace_events(records("transfer"))}
