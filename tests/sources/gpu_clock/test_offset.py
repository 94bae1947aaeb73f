"""The offset of two clocks, from literal bounds."""

import pytest

from tuimon.sources.gpu_clock.offset import ClockOffset

MS, SECOND = 1_000_000, 1_000_000_000
OFFSET = 1_000 * SECOND


def true_ns(gpu_ns, rate=0.0):
    return OFFSET + gpu_ns + round(rate * gpu_ns)


def filled(moments, rate=0.0, lead_ns=0, look_ns=20 * MS, prompt=True):
    """Events that the GPU met at these moments, promptly or so long after they were recorded."""
    offset = ClockOffset()
    for moment in moments:
        met_ns = true_ns(moment, rate)
        early_ns = 8_000 if prompt else lead_ns
        offset.add_event(moment, met_ns - early_ns, met_ns + look_ns, met_ns - early_ns + 15_000 if prompt else None)
    return offset


def test_nothing_is_known_of_nothing():
    assert ClockOffset().bounds_at([5]) is None


def test_one_prompt_event_tells_the_offset_there():
    (bounds,) = filled([SECOND]).bounds_at([SECOND])
    assert bounds.lowest <= OFFSET <= bounds.highest
    assert bounds.highest - bounds.lowest < 20_000


@pytest.mark.parametrize("rate", [-100e-6, 0.0, 100e-6])
def test_the_rate_is_found(rate):
    offset = filled(range(SECOND, 30 * SECOND, SECOND // 2), rate)
    near, far = offset.bounds_at([29 * SECOND, 39 * SECOND])
    for bounds, moment in ((near, 29 * SECOND), (far, 39 * SECOND)):
        assert bounds.lowest <= true_ns(moment, rate) - moment <= bounds.highest
    assert near.highest - near.lowest < 20_000
    assert far.highest - far.lowest < 60_000


def test_before_the_rate_is_known_what_is_far_is_uncertain():
    (far,) = filled([SECOND]).bounds_at([6 * SECOND])
    assert far.highest - far.lowest > MS


def test_events_that_come_late_bound_as_well():
    moments = [SECOND + i * 37 * MS for i in range(200)]
    offset = ClockOffset()
    for i, moment in enumerate(moments):  # looked at every 10 ms, at another moment of each
        late_ns = i * 3 * MS % (10 * MS)
        offset.add_event(moment, true_ns(moment) - 10 * MS + late_ns, true_ns(moment) + late_ns)
    (bounds,) = offset.bounds_at([moments[-1]])
    assert bounds.lowest <= OFFSET <= bounds.highest
    assert bounds.highest - bounds.lowest < 2 * MS


def test_a_straight_line_between_two_bounds_is_a_bound():
    offset = filled(range(SECOND, 20 * SECOND, SECOND), 80e-6)
    first, middle, last = offset.bounds_at([10 * SECOND, 15 * SECOND, 20 * SECOND])
    assert (first.lowest + last.lowest) / 2 <= middle.lowest + 1
    assert (first.highest + last.highest) / 2 >= middle.highest - 1


@pytest.mark.parametrize("at", range(40))
def test_one_event_whose_recording_was_interrupted_does_not_mislead(at):
    offset = ClockOffset()
    for i in range(40):
        moment = SECOND + i * SECOND // 4
        early_ns = 5 * MS if i == at else 8_000
        offset.add_event(
            moment, true_ns(moment) - early_ns, true_ns(moment) + 20 * MS, true_ns(moment) - early_ns + 15_000
        )
    (bounds,) = offset.bounds_at([SECOND + 39 * SECOND // 4])
    assert bounds.lowest <= OFFSET <= bounds.highest
    assert bounds.highest - bounds.lowest < 40_000


def test_a_clock_that_was_set_begins_anew():
    offset = filled(range(SECOND, 10 * SECOND, SECOND))
    for moment in range(10 * SECOND, 40 * SECOND, SECOND):
        met_ns = true_ns(moment) + 50 * MS
        offset.add_event(moment, met_ns - 8_000, met_ns + 20 * MS, met_ns + 7_000)
    (bounds,) = offset.bounds_at([39 * SECOND])
    assert bounds.lowest <= OFFSET + 50 * MS <= bounds.highest


def test_the_rate_is_kept_over_a_pause():
    offset = filled(range(SECOND, 30 * SECOND, SECOND), 70e-6)
    offset.bounds_at([29 * SECOND])
    offset.add_event(200 * SECOND, true_ns(200 * SECOND, 70e-6) - 8_000, true_ns(200 * SECOND, 70e-6) + MS)
    offset.add_event(201 * SECOND, true_ns(201 * SECOND, 70e-6) - 8_000, true_ns(201 * SECOND, 70e-6) + MS)
    (before,) = offset.bounds_at([196 * SECOND])
    (now,) = offset.bounds_at([201 * SECOND])
    assert (before.highest - before.lowest) - (now.highest - now.lowest) < 200_000  # not 2 ms: 200 ppm in five seconds


def test_rounding_in_the_count_is_counted():
    tight, loose = (filled(range(SECOND, 10 * SECOND, SECOND)) for _ in range(2))
    loose.loosen(30_000)
    moment = 10 * SECOND
    for offset in (tight, loose):
        met_ns = true_ns(moment)
        offset.add_event(moment, met_ns - 5 * MS, met_ns + 5 * MS)
    width = [bounds.highest - bounds.lowest for offset in (tight, loose) for bounds in offset.bounds_at([moment])]
    assert width[1] - width[0] > 30_000


def test_what_is_kept_is_bounded():
    offset = filled(range(SECOND, 3 * 3600 * SECOND, SECOND // 2))
    assert len(offset._blocks) <= 32
    assert sum(len(block.lower) + len(block.upper) + len(block.prompt) for block in offset._blocks) < 500
