"""A finding's evidence for people: names without their unit, values with it."""

from __future__ import annotations

from collections.abc import Callable

from tuimon.views.format import celsius, duration, ms, number, percent, phase_name, plain, size, watt

#: A name's suffix -> how its value is written, and what replaces the suffix; the first that fits.
_UNITS: tuple[tuple[str, Callable[[float], str], str], ...] = (
    ("_ms_per_step", ms, "_per_step"),
    ("_ms_per_batch", ms, "_per_batch"),
    ("_bytes_per_s", lambda value: f"{size(value)}/s", ""),
    ("_bytes", size, ""),
    ("_ratio", percent, ""),
    ("_share", percent, "_share"),
    ("_holds_gil", percent, "_holds_gil"),
    ("_hold_gil", percent, "_hold_gil"),
    ("_idle_at_least", percent, "_idle_at_least"),
    ("_idle_at_most", percent, "_idle_at_most"),
    ("_util", percent, "_util"),
    ("unexplained", percent, "unexplained"),
    ("speedup_at_most", lambda value: f"{value:.2f}×", "speedup_at_most"),
    ("_ms", ms, ""),
    ("_us", lambda value: ms(value / 1000), ""),
    ("_mhz", lambda value: f"{value:.0f} MHz", ""),
    ("_w", watt, ""),
    ("_c", celsius, ""),
    ("_s", lambda value: duration(value) if value >= 0.1 else ms(1000 * value), ""),
)
_SHORT = {"gpu": "GPU", "sm": "SM", "cpu": "CPU", "gil": "GIL", "gc": "GC", "pid": "pid", "pcie": "PCIe"}


def evidence_text(name: str, value: float | int | str) -> tuple[str, str]:
    """``("data per step", "41.5 ms")`` of ``data_ms_per_step`` and 41.5."""
    name = plain(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
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
