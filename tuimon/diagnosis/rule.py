"""A row of the rule table: everything that defines one rule."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Severity
from tuimon.diagnosis.needs import Need
from tuimon.diagnosis.threshold import Threshold


class Rule(Struct, frozen=True):
    """One rule; it abstains without any of ``needs``, and ``judge`` returns None where it finds nothing.

    ``order``: its place among findings of equal severity and share, lowest first.
    """

    name: str  # as reports and ``--fail-on`` spell it
    title: str  # for people, in a few words
    order: int
    judge: Callable[[Evidence], Finding | None]
    explanation: str  # one paragraph: what it means and what it rests on
    needs: tuple[Need, ...]
    thresholds: tuple[Threshold, ...]
    causes: tuple[str, ...] = ()
    contradicts_order: bool = False  # while it holds (but for benign findings), the loop is not in order
    from_outside: bool = False  # caused by others or by the machine: ranked after what the run does to itself
    is_harm: bool = False  # it may end the run: grave whatever a fix gains, and ranked first of its severity
    of_moment: bool = False  # about a state of a moment, such as full memory, not about steps
    of_end: bool = False  # judged once more when the run has ended: that may be what ended it
    before_steps: bool = False  # judged before the first whole step too: harm that no step has to show
    ranked_as: Severity | None = None  # another severity than its findings' own, for their order
