"""GPU time in report, headless and export, of simulated trainings."""

import json

import pytest

from tests.gpu_simulator.sessions import records, simulated
from tests.session.gpu.test_gpu_time import gpu_time, session
from tests.session.records import session_of
from tests.views.traces import trace_events
from tuimon.records import GpuTime
from tuimon.session.session import Session
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


def test_the_text_report_has_it_only_where_it_was_measured():
    text = text_report(report_of(folded("data_starved"), [], "run.jsonl"))
    (data,) = [line for line in text[text.index("On the GPU") :].splitlines() if line.startswith("  data")]
    assert "idle" in data
    without = Session()
    for record in records("data_starved"):
        if not isinstance(record, GpuTime):
            without.add(record)
    assert "On the GPU" not in text_report(report_of(without, [], "run.jsonl"))


def test_headless_names_the_lead_and_the_idle_share():
    assert " lead 4.4 ms idle 6" in progress(folded("data_starved"))
    assert " lead" not in progress(folded("transfer"))  # not known there
    assert " idle" not in progress(folded("gpu_bound"))


def test_nothing_is_named_where_nothing_was_timed():
    assert " lead" not in progress(session(gpu_time(1.0, turns=0)))


def test_perfetto_has_tracks_of_lead_and_idleness():
    events = trace_events(records("data_starved"))
    tracks = {}
    for event in events:
        tracks.setdefault(event["name"], []).append(event.get("args"))
    assert all(args["backward begin"] == pytest.approx(4.45, abs=0.1) for args in tracks["launches run ahead, ms"])
    assert all(0.4 < args["ratio"] < 0.9 for args in tracks["GPU idle, certain"])
    assert all(sum(args.values()) == pytest.approx(1) for args in tracks["GPU time by phase"])
    assert "launches run ahead, ms" not in {event["name"] for event in trace_events(records("transfer"))}
