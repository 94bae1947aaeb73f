"""Launch leads from literal events."""

from __future__ import annotations

import pytest

from tuimon.agent.ring import layout
from tuimon.sources.gpu_clock.offset import Chain, TimedBoundary
from tuimon.sources.loop.step import MarkedStretch

MS, SECOND = 1_000_000, 1_000_000_000
#: The CPU's clock less the GPU's, the time from marker to GPU, and from there until the event is seen done.
OFFSET, LEAD_NS, SEEN_NS = 1_000 * SECOND, 2 * MS, 3 * MS


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
