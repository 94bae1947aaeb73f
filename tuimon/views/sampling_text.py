"""How well stacks were sampled, in a few words: ``20 Hz · 97 % covered · 2 failed · 2.1 % cpu``."""

from __future__ import annotations

from tuimon.session.sampling import Sampling
from tuimon.views.format import percent


def sampling_text(sampling: Sampling) -> str:
    """The figures that are known; failures only where there were any."""
    parts = ["in-process"] if sampling.in_process else []
    if sampling.rate_hz is not None:
        parts.append(f"{sampling.rate_hz:.{0 if sampling.rate_hz >= 9.95 else 1}f} Hz")
    if sampling.coverage_ratio is not None:
        parts.append(f"{percent(sampling.coverage_ratio)} covered")
    if sampling.failed:
        parts.append(f"{sampling.failed} failed")
    if sampling.lost:
        parts.append("1 window lost" if sampling.lost == 1 else f"{sampling.lost} windows lost")
    if sampling.cpu_ratio is not None:
        parts.append(f"{percent(sampling.cpu_ratio, 1)} cpu")
    return " · ".join(parts)
