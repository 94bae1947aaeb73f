"""Samples of a whole run: all of them count, in a bounded number of windows."""

import pytest
from msgspec import structs

from tests.session.records import stacks
from tuimon.session.samples.run_samples import RunSamples
from tuimon.session.windows import Span


def counts_of(windows):
    found = {}
    for stack in (stack for record in windows for stack in record.stacks):
        found[tuple(stack.frames)] = found.get(tuple(stack.frames), 0) + stack.count
    return found


def run_of(seconds, limit=32):
    """Every eighth second saves a checkpoint (stack 1), the others train."""
    samples = RunSamples(limit)
    for t in range(1, seconds + 1):
        samples.append(stacks(float(t), ([1 if t % 8 == 1 else 2], 20)))
    return samples


@pytest.mark.parametrize("seconds", [64, 100, 1600, 7200])
def test_every_sample_counts_however_regular_the_run_and_however_long(seconds):
    samples = run_of(seconds)
    checkpoints = len(range(1, seconds + 1, 8))
    assert counts_of(samples.between(Span())) == {(1,): 20 * checkpoints, (2,): 20 * (seconds - checkpoints)}
    assert len(samples) <= 64


def test_the_latest_windows_stay_and_older_ones_follow_each_other_without_a_gap():
    windows = run_of(13, limit=4).between(Span())
    assert [record.window_s for record in windows[-4:]] == [1.0] * 4
    assert [record.t - record.window_s for record in windows] == [0.0, *(record.t for record in windows[:-1])]
    assert len(windows) <= 8


def test_windows_of_ten_seconds_count_as_ten_of_one_second():
    fine, coarse = RunSamples(), RunSamples()
    for t in range(1, 601):
        fine.append(stacks(float(t), ([1 if t % 10 == 3 else 2], 20)))
        if t <= 300:
            coarse.append(stacks(float(t), ([1 if t % 10 == 3 else 2], 20)))
        elif t % 10 == 0:
            coarse.append(structs.replace(stacks(float(t), ([1], 20), ([2], 180)), window_s=10.0))
    assert counts_of(coarse.between(Span())) == counts_of(fine.between(Span()))


def test_what_was_before_a_span_or_after_it_is_no_part_of_it():
    samples = run_of(1600)
    inside = samples.between(Span(400.0, 1200.0))
    assert inside
    assert all(record.t - record.window_s >= 400.0 and record.t <= 1200.0 for record in inside)
    samples.keep(lambda record: record.t - record.window_s >= 1500.0)
    assert all(record.t - record.window_s >= 1500.0 for record in samples.between(Span()))
    assert len(samples) >= 32


def test_a_window_holds_its_most_frequent_stacks():
    samples = RunSamples(limit=1)
    for t in range(1, 20):
        samples.append(stacks(float(t), ([0], 30), *(([1000 * t + n], 1) for n in range(100))))
    older = samples.between(Span())[0]
    assert len(older.stacks) <= 128
    assert older.stacks[0].frames == [0]
