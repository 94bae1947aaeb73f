"""Utilisation of a GPU: the driver's buffered samples, or else its latest average."""

from __future__ import annotations

from tuimon.sources.nvml.library import Handle

#: Most samples in one record.
_SAMPLES = 10


class Utilisation:
    """Collects over a window the share of time in which a kernel was running."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._seen_us = 0  # the driver's timestamp of the newest sample read
        self._polled = False
        self._samples: list[float] = []
        self._averages: list[float] = []

    def poll(self) -> None:
        """Read the new samples; the driver's buffer holds a few seconds."""
        api = self._handle.api
        answer = self._handle.query("nvmlDeviceGetSamples", api.NVML_GPU_UTILIZATION_SAMPLES, self._seen_us)
        samples = ((s.timeStamp, s.sampleValue.uiVal) for s in answer[1]) if answer else ()
        fresh = sorted(sample for sample in samples if sample[0] > self._seen_us)
        first, self._polled = not self._polled, True
        if fresh:
            self._seen_us = fresh[-1][0]
        if fresh and not first:  # at first the buffer holds samples from before this run
            self._samples += [min(value / 100, 1.0) for _, value in fresh]
            return
        rates = self._handle.query("nvmlDeviceGetUtilizationRates")
        if rates is not None:
            self._averages.append(min(rates.gpu / 100, 1.0))

    def window(self) -> tuple[list[float], float | None]:
        """The samples of the window that ends now, oldest first, and the mean of all."""
        samples, averages = self._samples, self._averages
        self._samples, self._averages = [], []
        known = samples or averages
        mean = round(sum(known) / len(known), 3) if known else None
        return [round(ratio, 2) for ratio in _thinned(samples)], mean


def _thinned(samples: list[float]) -> list[float]:
    """The samples, as many as a record may hold: neighbours are averaged."""
    many = len(samples)
    if many <= _SAMPLES:
        return samples
    parts = (samples[place * many // _SAMPLES : (place + 1) * many // _SAMPLES] for place in range(_SAMPLES))
    return [sum(part) / len(part) for part in parts]
