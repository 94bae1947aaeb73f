"""The cost of a training in words and as JSON: of 1,000 samples, of a day, and what the verdict's fix saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rulebook import is_minor
from tuimon.session.running_cost import RunningCost, running_cost
from tuimon.session.session import Session
from tuimon.views.finding_text import is_open
from tuimon.views.format import number, plain


def cost_text(session: Session, findings: Sequence[Finding]) -> str:
    """``0.12 EUR and 51 kJ per 1,000 samples ...``; empty without a price, or where the GPUs are not known."""
    pid = session.trainer()
    cost = running_cost(session, pid) if pid is not None else None
    return _text(cost, _saved(cost, findings)) if cost is not None else ""


def cost_json(session: Session, findings: Sequence[Finding]) -> dict[str, Any]:
    """The same, figure by figure; empty like that."""
    pid = session.trainer()
    cost = running_cost(session, pid) if pid is not None else None
    if cost is None:
        return {}
    saved = _saved(cost, findings)
    return {
        "currency": plain(cost.price.currency),
        "per_gpu_hour": cost.price.per_gpu_hour,
        "gpus": cost.gpus,
        "of": cost.of,
        "money_per_1000": cost.money,
        "joules_per_1000": cost.joules,
        "money_per_day": cost.money_per_day,
        "saved_per_day": list(saved) if saved is not None else None,
        "text": _text(cost, saved),
    }


def _saved(cost: RunningCost, findings: Sequence[Finding]) -> tuple[float, float] | None:
    """Money a day, at least and at most, if the same steps take less time; None where no gain is known."""
    if not findings or is_minor(findings[0].rule, findings[0].severity):
        return None
    fix = findings[0].best
    if not fix.estimated_speedup or fix.estimated_speedup <= 1.0:
        return None
    low, high = fix.low or fix.estimated_speedup, fix.high or fix.estimated_speedup
    ends = (low, fix.estimated_speedup if is_open(high) else high)
    least, most = (cost.money_per_day * (1.0 - 1.0 / max(1.0, gain)) for gain in ends)
    return least, most


def _text(cost: RunningCost, saved: tuple[float, float] | None) -> str:
    parts = []
    if cost.money is not None:
        parts.append(_money(cost, _amount(cost.money)))
    if cost.joules is not None:
        parts.append(_energy(cost.joules))
    each = f"{' and '.join(parts)} per 1,000 {cost.of}, " if parts else ""
    gpus = f"{cost.gpus} GPU{'s' * (cost.gpus != 1)}"
    text = f"{each}{_money(cost, number(cost.money_per_day))} a day on {gpus}"
    if saved is None:
        return text
    least, most = number(saved[0]), number(saved[1])
    span = f"up to {most}" if not saved[0] else most if least == most else f"{least} to {most}"
    return f"{text}; the fix would save {_money(cost, span)} of that"


def _amount(value: float) -> str:
    """``0.0125``: of small sums three digits that count."""
    return number(value) if value >= 1.0 else f"{value:.3g}" if value >= 1e-4 or not value else "<0.0001"


def _money(cost: RunningCost, amount: str) -> str:
    return f"{amount} {plain(cost.price.currency)}".strip()


def _energy(joules: float) -> str:
    for unit, size in (("MJ", 1e6), ("kJ", 1e3)):
        if joules >= 0.9995 * size:
            return f"{number(joules / size)} {unit}"
    return f"{number(joules)} J"
