"""How far launches run ahead of the GPU at each boundary, over several GpuTime records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuimon.records import GpuTime, Lead
from tuimon.session.rows import LeadRow
from tuimon.session.windows import weighted_median

BACKWARD_BEGIN = "backward begin"
#: The order in which boundaries are listed.
_ORDER = ("fetch end", BACKWARD_BEGIN, "backward end", "optimizer begin", "optimizer end")


def lead_rows(records: Sequence[GpuTime]) -> Iterable[LeadRow]:
    """A row for each boundary, in the order of the loop."""
    by_boundary: dict[str, list[Lead]] = {}
    for record in records:
        for lead in record.leads:
            by_boundary.setdefault(lead.boundary, []).append(lead)
    for boundary in (*_ORDER, *sorted(by_boundary.keys() - set(_ORDER))):
        if boundary in by_boundary:
            yield _lead_row(boundary, by_boundary[boundary])


def _lead_row(boundary: str, leads: Sequence[Lead]) -> LeadRow:
    """The lead at one boundary over all windows where it is known; None where that is not the majority."""
    seen = sum(lead.count for lead in leads)
    known = [lead for lead in leads if lead.median_us is not None]
    stream_idle_ratio = sum(lead.idle_count for lead in leads) / seen if seen else 0.0
    mean_us, bounds = _mean_us(leads), [lead.at_least_us for lead in leads]
    at_least_us = min((bound for bound in bounds if bound is not None), default=None) if None not in bounds else None
    if 2 * sum(lead.count for lead in known) <= seen:
        return LeadRow(boundary, seen, None, None, None, stream_idle_ratio, mean_us, at_least_us)
    return LeadRow(
        boundary=boundary,
        seen=seen,
        min_us=min(lead.min_us for lead in known if lead.min_us is not None),
        median_us=weighted_median((lead.median_us, lead.count) for lead in known if lead.median_us is not None),
        max_us=max(lead.max_us for lead in known if lead.max_us is not None),
        stream_idle_ratio=stream_idle_ratio,
        mean_us=mean_us,
        at_least_us=at_least_us,
    )


def _mean_us(leads: Sequence[Lead]) -> float | None:
    """Mean lead over the windows in which it is known; None where these are not the majority."""
    known = [(lead.mean_us, lead.count) for lead in leads if lead.mean_us is not None]
    counted = sum(count for _, count in known)
    if 2 * counted <= sum(lead.count for lead in leads):
        return None
    return sum(mean * count for mean, count in known) / counted
