"""Finds what a training waits for: rules judge the evidence that a Session holds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuimon.diagnosis.judging import diagnose, judge

__all__ = ["diagnose", "judge"]


def __getattr__(name: str) -> object:
    """Load the rules on first use: a caller that needs only a Finding loads none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.judging"), name)
