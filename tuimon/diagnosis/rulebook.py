"""The rule table: every rule there is, and the names that follow from it."""

from __future__ import annotations

from typing import get_args

from tuimon.diagnosis.finding import Severity
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules import (
    comm,
    cores,
    course,
    gil,
    gpu_copy,
    gpu_pace,
    gpu_state,
    gpu_sync,
    hang,
    host,
    input,
    memory,
    neighbour,
    ranks,
    start,
)

_FAMILIES = (
    start.RULES,
    hang.RULES,
    course.RULES,
    input.RULES,
    gpu_pace.RULES,
    gpu_sync.RULES,
    gpu_copy.RULES,
    gpu_state.RULES,
    host.RULES,
    ranks.RULES,
    comm.RULES,
    gil.RULES,
    cores.RULES,
    neighbour.RULES,
    memory.RULES,
)

RULES: tuple[Rule, ...] = tuple(sorted((rule for family in _FAMILIES for rule in family), key=lambda rule: rule.order))
BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}

SEVERITIES: frozenset[str] = frozenset(get_args(Severity))
RULE_NAMES: frozenset[str] = frozenset(BY_NAME)
CAUSES: frozenset[str] = frozenset(cause for rule in RULES for cause in rule.causes)
#: What ``--fail-on`` accepts.
FINDING_NAMES: frozenset[str] = RULE_NAMES | CAUSES | SEVERITIES
