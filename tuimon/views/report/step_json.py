"""Steps and phases as the report's JSON has them."""

from __future__ import annotations

from typing import Any

from tuimon.session.phase_table import PhaseTable
from tuimon.session.steps import StepSummary
from tuimon.views.gpu_text import idle_bounds, measured_idle_ms

#: Values of JSON: str, int, float, bool, None and lists and dicts of these.
Json = Any  # a recursive alias is beyond mypy's inference in the literals below


def steps_json(steps: StepSummary | None) -> dict[str, Json]:
    """The figures of measured steps; ``timed_share`` only where not all were timed (fast loops)."""
    steps = None if steps is not None and steps.estimated else steps
    timed = {"timed_share": rounded(steps.timed_ratio)} if steps and steps.timed_ratio < 1 else {}
    return {
        "count": steps.total if steps else 0,
        "median_ms": rounded(steps.median_ms) if steps else None,
        "p95_ms": rounded(steps.p95_ms) if steps else None,
        "per_second": rounded(steps.per_second) if steps else None,
        "dropped_markers": steps.dropped if steps else 0,
        **timed,
    }


def phases_json(table: PhaseTable | None) -> list[dict[str, Json]]:
    """Shares as the session has them; rounded late, so that they still add to 1.

    ``gpu_ms_per_step`` is the span on the GPU's clock; how long the GPU idles in it is often known between bounds only.
    """
    rows = table.rows if table else ()
    step_ms = sum(row.gpu_ms_per_step or 0.0 for row in rows if row.name != "eval")
    return [
        {
            "name": row.name,
            "share": row.share,
            "cpu_ms_per_step": rounded(row.ms_per_step),
            "gpu_ms_per_step": rounded(row.gpu_ms_per_step),
            "gpu_idle_ms_per_step": rounded(measured_idle_ms(row, step_ms)),
            **(
                {"gpu_idle_ms_low": rounded(bounds[0]), "gpu_idle_ms_high": rounded(bounds[1])}
                if (bounds := idle_bounds(row)) is not None  # only where there are GPU times
                else {}
            ),
            "estimated": row.estimated,
            "error": row.error,
        }
        for row in rows
    ]


def picked(of: object, *names: str) -> dict[str, Json]:
    """The fields of these names, numbers rounded."""
    values = {name: getattr(of, name) for name in names}
    return {name: rounded(value) if isinstance(value, float) else value for name, value in values.items()}


def rounded(value: float | None) -> float | None:
    """To four digits after the point."""
    return None if value is None else round(value, 4)
