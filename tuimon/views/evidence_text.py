"""A finding's evidence for people: names without their unit, values with it, bounds as a range."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuimon.diagnosis.threshold import SMALL
from tuimon.views.format import (
    NOTHING,
    celsius,
    duration,
    ms,
    number,
    percent,
    percent_range,
    phase_name,
    plain,
    says_nothing,
    size,
    watt,
)

#: A name's suffix -> how its value is written, and what replaces the suffix; the first that fits.
_UNITS: tuple[tuple[str, Callable[[float], str], str], ...] = (
    ("gpu_ms_per_step", ms, "gpu_span_per_step"),  # idle time included
    ("_ms_per_step", ms, "_per_step"),
    ("_ms_per_batch", ms, "_per_batch"),
    ("_bytes_per_s", lambda value: f"{size(value)}/s", ""),
    ("_bytes", size, ""),
    ("_ratio", percent, ""),
    ("_share", percent, "_share"),
    ("_at_least", percent, "_at_least"),
    ("_at_most", percent, "_at_most"),
    ("_by_events", percent, "_by_events"),
    ("_by_nvml", percent, "_by_nvml"),
    ("_util", percent, "_util"),
    ("_ms", ms, ""),
    ("_us", lambda value: ms(value / 1000), ""),
    ("_mhz", lambda value: f"{value:.0f} MHz", ""),
    ("_w", watt, ""),
    ("_c", celsius, ""),
    ("_s", lambda value: duration(value) if value >= 0.1 else ms(1000 * value), ""),
)


def _of_the(whole: str) -> Callable[[float], str]:
    return lambda value: f"{percent(value)} of the {whole}"


_OF_TIME, _OF_DATA = _of_the("time"), _of_the("time for data")
#: Figures whose name says too little without the code: how each is called, and how its value is written.
_NAMED: dict[str, tuple[str, Callable[[float], str]]] = {
    "worker_busy_ratio": ("workers make batches", _OF_TIME),
    "worker_cpu_ratio": ("worker CPU", lambda value: f"{percent(value)} of a core"),
    "hot_share": ("hottest function", _of_the("samples")),
    "environment_share": ("environment", _OF_DATA),
    "policy_share": ("policy", _OF_DATA),
    "copy_share": ("copies", _OF_DATA),
    "caught_ooms": ("out-of-memory errors that were caught", number),
    "waiting_share": ("CPU waits for GPU", _OF_TIME),
    "queue_wait_share": ("waits for batches", _OF_TIME),
    "delay_ratio": ("waits for a core", _OF_TIME),
    "gil_ratio": ("holds the GIL", _OF_TIME),
    "others_hold_gil": ("others hold the GIL", _OF_TIME),
    "training_holds_gil": ("its own GIL time", _OF_TIME),
    "unexplained": ("unexplained waits", _OF_TIME),
    "compiling_share": ("compiles", _OF_TIME),
    "gc_share": ("garbage collection", _OF_TIME),
    "eval_share": ("evaluation", _OF_TIME),
    "calls_share": ("in collectives", _OF_TIME),
    "waiting_in_backward_share": ("waits in backward", _OF_TIME),
    "waits_for_later_ranks_at_least_share": ("waits for others", lambda value: f"at least {percent(value)}"),
    "last_share": ("late in", _of_the("steps")),
    "throttled_share": ("clocks held down", _OF_TIME),
    "stalled_ratio": ("stalled for memory", _OF_TIME),
    "lead_us": ("launch lead", lambda value: ms(value / 1000)),
    "lead_ms": ("launch lead", ms),
    "speedup_at_most": ("gain at most", lambda value: f"{value:.2f}x"),
}
_SHORT = {
    "gpu": "GPU",
    "nvml": "NVML",
    "sm": "SM",
    "cpu": "CPU",
    "gil": "GIL",
    "gc": "GC",
    "pid": "pid",
    "pcie": "PCIe",
}


_LEAST, _MOST = "_at_least", "_at_most"

Evidence = Mapping[str, float | int | str | None]


def evidence_rows(evidence: Evidence) -> list[tuple[str, str]]:
    """The known figures, as ``evidence_text``; both bounds of a share in one: ``("GPU idle", "72 to 86 %")``."""
    rows = []
    for name, value in evidence.items():
        bounds = _bounds(evidence, name)
        if bounds is not None and _LEAST in name:
            rows.append((_words(name.replace(_LEAST, "")), between(*bounds)))
        elif bounds is None and value is not None:
            rows.append(evidence_text(name, value))
    return rows


def between(low: float, high: float) -> str:
    """``72 to 86 %``, ``up to 79 %`` if next to nothing is certain; ``unknown`` if anything may be."""
    if says_nothing(low, high):
        return "unknown"
    return f"up to {percent(high)}" if low < min(SMALL, high / 2) else percent_range(low, high, " to ")


def _bounds(evidence: Evidence, name: str) -> tuple[float, float] | None:
    """Both bounds of a share, by the name of either; None where there are not both."""
    low, high = evidence.get(name.replace(_MOST, _LEAST)), evidence.get(name.replace(_LEAST, _MOST))
    if name.replace(_MOST, _LEAST) == name.replace(_LEAST, _MOST):
        return None
    return (low, high) if isinstance(low, int | float) and isinstance(high, int | float) else None


def evidence_text(name: str, value: float | int | str) -> tuple[str, str]:
    """``("data per step", "41.5 ms")`` of ``data_ms_per_step`` and 41.5."""
    name = plain(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if name == "tf32":
            return "TF32", "on" if value else "off"
        if name == "gpu_idle_at_most" and value < NOTHING:
            return "GPU", "always busy"
        if name in _NAMED:
            words, shown = _NAMED[name]
            return words, shown(value)
        for end, shown, kept in _UNITS:
            if name.endswith(end):
                return _words(name.removesuffix(end) + kept), shown(value)
    if isinstance(value, bool):
        return _words(name), "yes" if value else "no"
    if name == "open_phase":
        value = phase_name(str(value))
    return _words(name), number(value) if isinstance(value, float) else plain(str(value))


def _words(name: str) -> str:
    return " ".join(_SHORT.get(word, word) for word in name.strip("_").split("_"))
