"""GPU time in report, headless and export, of simulated trainings."""

import pytest

from tests.gpu_simulator.sessions import records
from tests.session.records import header, process, session_of, steps
from tests.views.traces import trace_events
from tuimon.records import GpuPhase, GpuTime
from tuimon.views.gpu_idle import idle_bounds, with_idle_bounds
from tuimon.views.headless import progress


def folded(kind):
    return session_of(*records(kind))


def test_bounds_of_old_logs_with_few_steps_are_not_taken_for_bounds():
    """Their events do not bound what the CPU launches late: see ``GpuTime.bounded``."""
    old = session_of(header(), process(100), steps(1.0, {"forward": 100}, count=4))
    spans = [GpuPhase("forward", 400_000_000, 40_000_000, 0)]
    old.add(GpuTime(t=1.0, pid=100, window_s=1.0, device=0, steps=4, total_ns=400_000_000, phases=spans, leads=[]))
    assert idle_bounds(with_idle_bounds(old.over("recent"), 100)[0].rows[1]) == (
        pytest.approx(10.0),
        pytest.approx(100.0),
    )


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
