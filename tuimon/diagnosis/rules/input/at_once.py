"""Fixes that do at once what the training process does item by item, or batch by batch."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.loading.batches import draws_indices, is_loaders_own, working_share
from tuimon.diagnosis.evidence.steps import LongestSteps
from tuimon.diagnosis.finding import Change
from tuimon.diagnosis.step_model.edits import Part, Way
from tuimon.diagnosis.threshold import MOST


def whole_batches(evidence: Evidence) -> list[Way]:
    """Ways for a wait that is mostly the loader's own work, item by item.

    Without samples the wait has no line, and all of it counts; nothing where the user's lines take most of it.
    """
    data = evidence.stacks.data_phase
    own = 1.0 if not data.total else data.share_where(is_loaders_own) or 0.0
    if own < MOST:
        return []
    at_once = "make whole batches at once (__getitems__ in the data set, a vectorised collate_fn)"
    return [Way(at_once, Change("items", 0.0), Part(own))]


def draws_in_few(evidence: Evidence) -> LongestSteps | None:
    """The few steps in which most of the time goes that drawing indices takes: where an epoch begins; else None."""
    samples, data = evidence.stacks.data_phase, evidence.phase("data")
    drawing = samples.share_where(draws_indices(samples))
    if drawing is None or data is None or data.ms_per_step is None:
        return None
    return evidence.longest_steps(drawing * data.ms_per_step)


def working_part(evidence: Evidence) -> float | None:
    """The share of its fetches in which the training thread works itself, where workers make the batches."""
    return working_share(evidence.stacks.data_phase) if evidence.workers.number else None
