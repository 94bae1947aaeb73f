"""The offset of two clocks from literal bounds, and launch leads from literal events."""

import pytest

from tests.state_size import size_of
from tuimon.agent.ring import layout
from tuimon.sources.gpu_clock.offset import Chain, ClockOffset, TimedBoundary
from tuimon.sources.loop.step import MarkedStretch

MS, SECOND = 1_000_000, 1_000_000_000
OFFSET = 1_000 * SECOND


def true_ns(gpu_ns, rate=0.0):
    return OFFSET + gpu_ns + round(rate * gpu_ns)


def filled(moments, rate=0.0):
    """Events that the GPU met at these moments, promptly."""
    offset = ClockOffset()
    for moment in moments:
        met_ns = true_ns(moment, rate)
        offset.add_event(moment, met_ns - 8_000, met_ns + 20 * MS, met_ns + 7_000)
    return offset


def test_nothing_is_known_of_nothing():
    assert ClockOffset().bounds_at([5]) is None


def test_before_the_rate_is_known_what_is_far_is_uncertain():
    ((lowest, highest),) = filled([SECOND]).bounds_at([6 * SECOND])
    assert highest - lowest > MS


def test_the_rate_is_kept_over_a_pause():
    offset = filled(range(SECOND, 30 * SECOND, SECOND), 70e-6)
    offset.bounds_at([29 * SECOND])
    for moment in (200 * SECOND, 201 * SECOND):
        met_ns = true_ns(moment, 70e-6)
        offset.add_event(moment, met_ns - 8_000, met_ns + MS)
    widths_ns = [highest - lowest for lowest, highest in offset.bounds_at([196 * SECOND, 201 * SECOND])]
    assert widths_ns[0] - widths_ns[1] < 200_000  # not 2 ms: 200 ppm in five seconds


def test_what_is_kept_is_bounded():
    offset = filled(range(SECOND, 3 * 3600 * SECOND, SECOND // 2))
    assert size_of(offset) <= 1.2 * size_of(filled(range(SECOND, 3600 * SECOND, SECOND // 2)))


#: The time from marker to GPU, and from there until the event is seen done.
LEAD_NS, SEEN_NS = 2 * MS, 3 * MS


def leads_of(chain: Chain, gpu_moments: list[int], *, far_ahead: int | None = None) -> list[float]:
    """The estimated leads in us, seen in this order; the time of one, if any, is far ahead of what it was."""
    for number, gpu_ns in enumerate(gpu_moments):
        reached_ns = OFFSET + gpu_ns
        time = layout.EventTime(gpu_ns if number != far_ahead else 1 << 40, gap_us=None, stream_idle=False)
        marked_ns = reached_ns - LEAD_NS
        stretch = MarkedStretch("data", marked_ns, marked_ns, layout.FETCH_END, 3, 1, None, False, False, 0)
        chain.add_event(TimedBoundary(stretch), reached_ns + SEEN_NS, time)
    return [boundary.lead_us for boundary in chain.take_estimated()]


@pytest.mark.parametrize(
    "last_ms", [300, 100, 99], ids=["in order", "the last as the first", "the last before the first"]
)
def test_leads_are_true_in_whatever_order_events_of_several_streams_are_seen(last_ms: int) -> None:
    moments = [at * MS for at in (100, 110, 280, 150, last_ms)]
    assert all(0 <= lead_us <= (LEAD_NS + SEEN_NS) / 1000 for lead_us in leads_of(Chain(0), moments))


@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_time_that_is_damaged_moves_no_lead_beyond_the_moment_its_event_was_seen_done(at: int) -> None:
    found = leads_of(Chain(0), [number * 100 * MS for number in range(1, 6)], far_ahead=at)
    assert len(found) == 5
    assert all(0 <= lead_us <= (LEAD_NS + SEEN_NS) / 1000 for lead_us in found)
