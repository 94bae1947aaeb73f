"""What the records report, and the truth in the same terms."""

from collections.abc import Iterable
from statistics import median

from tests.gpu_simulator.training import Training
from tuimon.interval import NONE
from tuimon.records import GpuTime, Record
from tuimon.session.gpu_time import DeviceTimes, GpuTimeRow
from tuimon.session.series import WHOLE_RUN
from tuimon.sources.gpu_clock.offset import TimedBoundary
from tuimon.sources.gpu_clock.tracker import EVENT_BOUNDARIES

KINDS = {name: kind for kind, name in EVENT_BOUNDARIES.items()}


def timed(records: Iterable[Record]) -> list[GpuTime]:
    """The GpuTime records among others."""
    return [record for record in records if isinstance(record, GpuTime)]


def shares(records: Iterable[Record]) -> GpuTimeRow:
    """Shares of the phases over all records."""
    times = DeviceTimes(0)
    for record in timed(records):
        times.add_window(record)
    return times.over(WHOLE_RUN) or GpuTimeRow(0, 0, NONE, (), None)


def true_leads_us(training: Training, boundary: str, since_s: float = 0.0, until_s: float = 1e12) -> list[float]:
    """The leads at the boundaries that had events, as they were."""
    return [
        (found.gpu_ns - found.cpu_ns) / 1000
        for found in training.truth.boundaries
        if found.timed and found.kind == KINDS[boundary] and since_s <= found.cpu_ns / 1e9 < until_s
    ]


def lead_errors_us(training: Training, records: Iterable[Record]) -> list[tuple[float, float]]:
    """For each lead that is told: how far its median is off, and what half width its record admits."""
    errors = []
    for record in timed(records):
        for lead in record.leads:
            true = true_leads_us(training, lead.boundary, record.t - 2 * record.window_s, record.t)
            if lead.median_us is not None and true and record.lead_error_us is not None:
                errors.append((abs(lead.median_us - median(true)), record.lead_error_us))
    return errors


def event_errors_us(training: Training, seen: Iterable[TimedBoundary]) -> list[tuple[float, float]]:
    """How far each lead at a boundary is off, and the half width that is admitted."""
    true = {boundary.cpu_ns: (boundary.gpu_ns - boundary.cpu_ns) / 1000 for boundary in training.truth.boundaries}
    return [(abs(each.lead_us - true[each.time_ns]), each.error_us) for each in seen if each.kind in EVENT_BOUNDARIES]
