"""The offset of two clocks, from literal bounds."""

from tests.state_size import size_of
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


def test_before_the_rate_is_known_what_is_far_is_uncertain():
    ((lowest, highest),) = filled([SECOND]).bounds_at([6 * SECOND])
    assert highest - lowest > MS


def test_the_rate_is_kept_over_a_pause():
    offset = filled(range(SECOND, 30 * SECOND, SECOND), 70e-6)
    offset.bounds_at([29 * SECOND])
    offset.add_event(200 * SECOND, true_ns(200 * SECOND, 70e-6) - 8_000, true_ns(200 * SECOND, 70e-6) + MS)
    offset.add_event(201 * SECOND, true_ns(201 * SECOND, 70e-6) - 8_000, true_ns(201 * SECOND, 70e-6) + MS)
    widths_ns = [highest - lowest for lowest, highest in offset.bounds_at([196 * SECOND, 201 * SECOND])]
    assert widths_ns[0] - widths_ns[1] < 200_000  # not 2 ms: 200 ppm in five seconds


def test_what_is_kept_is_bounded():
    offset = filled(range(SECOND, 3 * 3600 * SECOND, SECOND // 2))
    assert size_of(offset) <= 1.2 * size_of(filled(range(SECOND, 3600 * SECOND, SECOND // 2)))
