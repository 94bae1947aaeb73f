"""Steps by which the GPUs of several ranks are compared, over any length of a run."""

from __future__ import annotations

from collections.abc import Iterable

from tuimon.records import GpuAccumulation, GpuExchange, GpuTime

#: Most that are kept of a run.
_LIMIT = 512
#: Most that are recent: to join those of 64 ranks takes 2 ms, each time that rules judge.
_RECENT = 64


class SpreadExchanges:
    """Exchanges of every second, later every other, then every fourth: by the clock, the same in all ranks."""

    def __init__(self) -> None:
        self.exchanges: list[GpuExchange] = []
        self._stride = 1

    def add_window(self, record: GpuTime) -> None:
        """Add a window's."""
        self.exchanges += self._kept(record.exchanges)
        if len(self.exchanges) > _LIMIT:
            self._stride *= 2
            self.exchanges = self._kept(self.exchanges)[:_LIMIT]

    def _kept(self, exchanges: Iterable[GpuExchange]) -> list[GpuExchange]:
        return [found for found in exchanges if int(found.reached_s) % self._stride == 0]


def latest(records: Iterable[GpuTime]) -> list[GpuExchange]:
    """The latest of several windows."""
    return [found for record in records for found in record.exchanges][-_RECENT:]


def summed(records: Iterable[GpuTime]) -> GpuAccumulation | None:
    """The sums of several windows; None without any."""
    known = [record.accumulation for record in records if record.accumulation is not None]
    if not known:
        return None
    return GpuAccumulation(sum(r.steps for r in known), sum(r.own_ns for r in known), sum(r.last_ns for r in known))
