"""Fixes that do at once what the training process does item by item, or batch by batch."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import HotFunction, sampling_error
from tuimon.diagnosis.evidence.loading.batches import draws_indices, is_loaders_own, working_share
from tuimon.diagnosis.evidence.samples import ThreadSamples
from tuimon.diagnosis.evidence.steps import LongestSteps
from tuimon.diagnosis.finding import Change
from tuimon.diagnosis.step_model.edits import Part, Way
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL
from tuimon.diagnosis.words import at_hot
from tuimon.session.loop_tree.stacks import StackSample


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


def with_loaders_own(evidence: Evidence) -> list[Way]:
    """The user's code that makes items and the loader's own work for each, where that is a part of the wait."""
    data = evidence.stacks.data_phase
    own, draws = data.share_where(is_loaders_own) or 0.0, draws_indices(data)
    items = data.where(lambda sample: _makes_item(sample) and not draws(sample))
    hot = items.hottest
    if hot is None or own < LARGE:
        return []
    part = _sampled_part(own + items.total / data.total, data)
    at_once = f"make whole batches at once: {at_hot(hot)} and the DataLoader's own work run once per item now"
    return [Way(at_once, Change("items", 0.0), part)]


def _makes_item(sample: StackSample) -> bool:
    """True if a fetch is in code of the user's, and does not make a batch of items there."""
    if "fetch" not in sample.kinds or sample.has("collates"):
        return False
    return any(frame.user for frame in sample.frames[sample.kinds.index("fetch") :])


def drawn_at_once(hot: HotFunction | None, evidence: Evidence) -> list[Way]:
    """All that draws indices; nothing where the function is nearly all of it."""
    data = evidence.stacks.data_phase
    drawing = data.share_where(draws_indices(data)) or 0.0
    if hot is None or hot.share >= NEARLY_ALL * drawing:
        return []
    part = _sampled_part(drawing / (working_part(evidence) or 1.0), data)
    return [Way("draw the indices of many batches at once", Change("fetch", 0.0), part)]


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


def _sampled_part(share: float, samples: ThreadSamples) -> Part:
    """A part that this share of some samples shows."""
    return Part(min(1.0, share), sampling_error(min(1.0, share), samples.total))
