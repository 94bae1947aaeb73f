"""Markers of one ring as records, window by window."""

import os
from collections import deque
from itertools import pairwise
from types import SimpleNamespace

import pytest

from tests.sources.loop.loop_script import MS, markers, other
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader, follow
from tests.state_size import size_of
from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import Event
from tuimon.agent.torch_compat.compilations import event_text
from tuimon.records import CompilerEvents, GpuTime, Mark, Steps, length_bucket
from tuimon.sources.markers.follower import CompilerTracker, RingFollower, StepRate, steps_in, steps_of
from tuimon.sources.markers.thread_loops import RangeTracker
from tuimon.sources.source_facts import ProcessCode


def test_windows_count_and_sum_their_steps():
    sequence = markers(PLAIN * 200, start_ns=10 * SECOND)
    _, records = follow(sequence, 14 * SECOND)
    assert [record.t for record in records] == [11.0, 12.0, 13.0, 14.0]
    assert sum(record.count for record in records) == 199
    assert [record.first_index for record in records][:2] == [0, records[0].count]
    full = records[1]
    assert full.median_ns == full.p95_ns == 16 * MS
    assert full.histogram == [(length_bucket(16 * MS), full.count)]
    assert {p.name: p.total_ns / full.count / MS for p in full.phases} == {
        "data": 5,
        "forward": 3,
        "backward": 4,
        "optimizer": 2,
        "other": 2,
    }
    assert sum(p.total_ns for p in full.phases) == full.total_ns


def test_the_first_step_without_a_loader_counts_and_is_in_no_time():
    sequence = markers("wait:6 bwd:3 opt:1 wait:400 bwd:3 opt:1 " * 3, start_ns=10 * SECOND)
    follower, records = follow(sequence, 11 * SECOND)
    records += [record for record in follower.last(12 * SECOND) if isinstance(record, Steps)]
    first = next(record for record in records if record.count)
    assert (sum(record.count for record in records), first.slowed, first.slowed_ns) == (6, 1, 4 * MS)
    assert sum(record.usual for record in records) == 5
    assert sum(record.total_ns for record in records) == (3 * 404 + 2 * 10) * MS
    assert min(record.min_ns for record in records if record.usual) == 10 * MS
    assert first.first_step_s == first.first_backward_s


def test_steps_go_on_after_markers_were_lost_inside_a_pair():
    """The end of the pair is lost with them."""
    follower, _ = follow(markers(PLAIN * 60 + " bwd(", start_ns=10 * SECOND), 11 * SECOND)
    later = markers(PLAIN * 60, start_ns=11 * SECOND)
    follower.reader.waiting, follower.reader.lost = FakeReader(later).waiting, 500
    (record,) = [record for record in follower.windows(12 * SECOND) if isinstance(record, Steps)]
    assert (record.dropped, record.count, record.median_ns) == (500, 60, 16 * MS)
    assert (length_bucket(16 * MS), 59) in record.histogram


def test_samples_and_tokens_of_a_window_are_those_that_the_program_says():
    sequence = markers(PLAIN * 100, start_ns=10 * SECOND)
    sizes = [(t, layout.STEP_SIZE, flag, n) for t in (10.2, 10.5, 11.2) for flag, n in ((1, 32), (2, 4096), (9, 7))]
    sequence = sorted([*sequence, *((int(t * SECOND), *rest) for t, *rest in sizes[:8])])
    _, records = follow(sequence, 13 * SECOND)
    assert [(record.samples, record.tokens) for record in records] == [(64, 8192), (32, 4096), (None, None)]


def test_phases_are_noted_where_somebody_asks_for_them():
    follower, _ = follow(markers(PLAIN * 60, start_ns=10 * SECOND), 11 * SECOND)
    follower.phases = deque()
    evaluation = "fetch@2:2 wait:3 fetch@2:2 wait:3 stop@2:1"
    later = markers(f"{PLAIN} {evaluation} {PLAIN}", start_ns=11 * SECOND)
    follower.reader.waiting = FakeReader(later).waiting
    list(follower.windows(12 * SECOND))
    first, *phases = follower.phases
    assert first[1] == 11 * SECOND
    step = "5 data, 3 forward, 4 backward, 1 other, 2 optimizer"
    assert ", ".join(f"{(end - begin) // MS} {name}" for begin, end, name in phases) == (
        f"{step}, 1 other, 2 data, 3 eval, 2 data, 3 eval, 1 data, 0 other, {step}"
    )
    assert all(end == begin for (_, end, _), (begin, _, _) in pairwise(follower.phases))


def test_the_open_phase_is_told():
    _, records = follow(markers("fetch:5 wait:3 bwd(", start_ns=10 * SECOND), 13 * SECOND)
    assert records[-1].open_phase == "backward"
    assert records[-1].open_for_s == pytest.approx(2.992)


def test_of_a_fast_loop_that_has_halted_it_is_known_since_when_and_not_in_which_phase():
    follower, _ = follow(markers("fetch:5 wait:3 bwd(", start_ns=10 * SECOND), 10 * SECOND)
    follower.reader.held_ns = 10 * SECOND + 28_000_000
    (record,) = follower.windows(11 * SECOND)
    assert (record.open_phase, record.open_for_s) == (None, pytest.approx(0.972))
    (*_, record) = follower.windows(30 * SECOND)
    assert (record.open_phase, record.open_for_s) == (None, pytest.approx(19.972))


@pytest.mark.parametrize(("live", "told"), [({42, 7, 8}, 7), ({42, 1007, 1008}, None), (None, None)])
def test_the_thread_that_trains_is_told_where_it_is_another_than_the_main_one(monkeypatch, live, told):
    """In a container a thread knows itself by another number than those outside."""
    monkeypatch.setattr(RingFollower, "live_threads", lambda _: live)
    sequence = markers(PLAIN * 50, start_ns=10 * SECOND)
    records = RingFollower(FakeReader(sequence), 1.0, 11 * SECOND).windows(11 * SECOND)
    assert [record.tid for record in records if isinstance(record, Steps)] == [told]


def test_marks_and_ranges():
    sequence = markers(PLAIN * 3, start_ns=10 * SECOND)
    step = 16 * MS
    for i in range(3):
        begin = 10 * SECOND + i * step
        sequence += [(begin + 2 * MS, layout.RANGE_PUSH, 0, 1), (begin + 6 * MS, layout.RANGE_PUSH, 0, 2)]
        sequence += [(begin + 7 * MS, layout.RANGE_POP, 0, 0), (begin + 12 * MS, layout.RANGE_POP, 0, 0)]
    sequence.append((10 * SECOND + 2, layout.MARK, 0, 2))
    follower = RingFollower(FakeReader(sorted(sequence)), 1.0, 11 * SECOND)
    mark, record = list(follower.windows(11 * SECOND))
    assert isinstance(mark, Mark)
    assert [(r.path, r.count, r.total_ns // MS, r.phase) for r in record.ranges] == [
        ("batch", 3, 30, "backward"),
        ("batch/loss\u2215a", 3, 3, "forward"),
    ]


def test_ranges_beyond_the_bounds_still_match_their_pops():
    tracker = RangeTracker(lambda number: f"r{number}")
    for depth in range(40):
        tracker.begin(depth, depth)
    for depth in range(40):
        tracker.end(100 + depth, 0)
    tracker.end(200, 0)  # one too many
    tracker.add_stretch(other(0, 300))
    sums = tracker.take_sums()
    assert len(sums) == 16
    assert (sums[0].path, sums[0].total_ns) == ("r0", 139)


def test_many_names_are_summed_up():
    tracker = RangeTracker(lambda number: f"r{number}")
    for i in range(200):
        tracker.begin(i * 10, i)
        tracker.end(i * 10 + 5, 0)
    tracker.add_stretch(other(0, 3000))
    assert len(tracker.take_sums()) <= 65


def test_pauses_of_the_garbage_collector_are_summed_and_of_no_loop():
    sequence = markers(PLAIN * 130, start_ns=10 * SECOND)
    pauses = [(10 * SECOND + at * MS, layout.GC_PAUSE, 2, 5 * MS) for at in (100, 900, 1500)]
    _, records = follow(sorted(sequence + pauses), 12 * SECOND)
    assert [(r.gc_ns, r.gc_count, r.gc_longest_ns) for r in records] == [(10 * MS, 2, 5 * MS), (5 * MS, 1, 5 * MS)]
    _, without = follow(sequence, 12 * SECOND)
    assert [r.count for r in without] == [r.count for r in records]
    assert [r.gc_ns for r in without] == [0, 0]


def test_collections_after_the_last_step_of_a_window_are_in_the_next_one():
    """``gc.collect()`` after a training is of no step, even if it begins in the window in which the last one ended."""
    pauses = [(10 * SECOND + at * MS, layout.GC_PAUSE, 2, 5 * MS) for at in (100, 700, 900)]
    _, records = follow(sorted(markers(PLAIN * 30, start_ns=10 * SECOND) + pauses), 12 * SECOND)
    assert [(record.count, record.gc_count) for record in records] == [(29, 1), (0, 2)]


def test_what_the_program_said_of_steps_before_the_first_window_is_in_no_record():
    long_ago = [(10 * SECOND, layout.STEP_SIZE, layout.STEP_SAMPLES, 32), (10 * SECOND + MS, layout.GC_PAUSE, 2, MS)]
    long_ago += markers(PLAIN * 5, start_ns=11 * SECOND)
    _, records = follow(long_ago + markers(PLAIN * 130, start_ns=100 * SECOND), 103 * SECOND)
    assert (records[0].first_index, sum(record.backwards for record in records)) == (4, 130)
    assert [record.samples for record in records] == [None] * len(records)
    assert [record.gc_count for record in records] == [0] * len(records)


def test_a_marker_dated_far_ahead_holds_up_nothing_and_counts_as_lost():
    sequence = markers(PLAIN * 200, start_ns=10 * SECOND)
    _, undamaged = follow(sequence, 14 * SECOND)
    for at in (0, 100):
        time_ns, *rest = sequence[at]
        damaged = [*sequence[:at], (time_ns + 10**15, *rest), *sequence[at + 1 :]]
        _, records = follow(damaged, 14 * SECOND)
        assert sum(record.count for record in records) >= sum(record.count for record in undamaged) - 2
        assert sum(record.dropped for record in records) == 1


def test_pairs_that_never_end_take_no_time_and_no_room():
    sequence = [((10_000 + i // 50) * MS, layout.OPTIMIZER_BEGIN, 0, i) for i in range(50_000)]
    follower, _ = follow(sequence, 14 * SECOND)
    assert size_of(follower) < 200_000


def test_what_the_clock_tells_and_what_nobody_knows_is_of_no_loop():
    sequence = markers(PLAIN * 120, start_ns=10 * SECOND)
    others = [
        (10 * SECOND + at * MS, kind, 3, layout.pack_gpu_time(at, None, False))
        for at, kind in enumerate((layout.GPU_TIME, layout.GPU_ANCHOR, layout.TORCH_MEMORY, 98, 99), start=100)
    ]
    _, plain = follow(sequence, 12 * SECOND)
    follower, same = follow(sorted(sequence + others), 12 * SECOND)
    assert same == plain
    assert not any(isinstance(record, GpuTime) for record in follower.last(12 * SECOND))


CODE = ("/me/net.py", 7, "forward")
NAMES = {
    1: event_text(Event("recompiled", 0, CODE, "L['n'] == N", "/me/net.py:9")),
    2: event_text(Event("graph_break", 0, ("/me/net.py", 12, "forward"), "print")),
    3: "damaged",
}


def test_a_window_has_one_record_with_counts_and_times():
    found = CompilerTracker(SimpleNamespace(name=NAMES.get), ProcessCode())
    for flag, value in ((1, 400), (1, 200), (2, 3), (3, 5), (9, 5), (1, -1)):
        found.add_marker(flag, value)
    (record,) = found.records(5.0, 42, 1.0)
    assert record.events == [
        CompilerEvents("recompiled", 2, 600, *CODE, "L['n'] == N", "/me/net.py:9"),
        CompilerEvents("graph_break", 3, 0, "/me/net.py", 12, "forward", "print"),
    ]
    assert list(found.records(6.0, 42, 1.0)) == []


def test_what_was_compiled_before_anybody_watched_is_dropped_and_a_broken_graph_stays():
    found = CompilerTracker(SimpleNamespace(name=NAMES.get), ProcessCode())
    found.add_marker(1, 400)
    found.add_marker(2, 3)
    found.skip_past()
    (record,) = found.records(5.0, 42, 1.0)
    assert [event.what for event in record.events] == ["graph_break"]


# -- the rate of steps that a ring shows, for a list of processes


def test_of_a_loop_that_runs():
    sequence = markers(PLAIN * 2000, start_ns=10 * SECOND)  # 16 ms each, for 32 s
    assert 60 < steps_in(FakeReader(sequence), 40 * SECOND).per_s < 65


def test_none_without_a_step_or_a_ring():
    assert steps_in(FakeReader([]), 40 * SECOND) == StepRate(None, has_stepped=False)
    assert steps_of(os.getpid()) is None


@pytest.mark.parametrize("script", [f"{PLAIN} {PLAIN}", "fetch:5 bwd:10"])
def test_a_loop_that_stands_for_long_has_stepped(script):
    sequence = markers(script, start_ns=10 * SECOND)
    assert steps_in(FakeReader(sequence), 400 * SECOND) == StepRate(None, has_stepped=True)
