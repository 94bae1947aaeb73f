"""Gains as the step model tells them."""

from __future__ import annotations

from tuimon.diagnosis.step_model.model import REST


def at_least(gained: float) -> float:
    """The lower end of the gain of what is rearranged: what is left takes longer."""
    return gained / (1.0 + REST * (1.0 - 1.0 / gained))
