"""The rule table: every rule there is, and the names that follow from it."""

from __future__ import annotations

from typing import get_args

from tuimon.diagnosis.finding import Severity
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules import (
    after,
    collections,
    comm,
    cores,
    course,
    gil,
    hang,
    memory,
    neighbour,
    side_work,
    slower_run,
    start,
    stragglers,
)
from tuimon.diagnosis.rules.compute import cpu, optimizer, recompiles, settings
from tuimon.diagnosis.rules.gpu import copy, devices, launches, pace, state, sync
from tuimon.diagnosis.rules.input import waiting

_FAMILIES = (
    start.RULES,
    hang.RULES,
    after.RULES,
    course.RULES,
    slower_run.RULES,
    waiting.RULES,
    launches.RULES,
    pace.RULES,
    sync.RULES,
    copy.RULES,
    state.RULES,
    devices.RULES,
    side_work.RULES,
    cpu.RULES,
    optimizer.RULES,
    recompiles.RULES,
    settings.RULES,
    stragglers.RULES,
    comm.RULES,
    gil.RULES,
    cores.RULES,
    neighbour.RULES,
    memory.RULES,
    collections.RULES,
)

RULES: tuple[Rule, ...] = tuple(sorted((rule for family in _FAMILIES for rule in family), key=lambda rule: rule.order))
BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}

SEVERITIES: frozenset[str] = frozenset(get_args(Severity))
RULE_NAMES: frozenset[str] = frozenset(BY_NAME)
CAUSES: frozenset[str] = frozenset(cause for rule in RULES for cause in rule.causes)
#: The names that ``--fail-on`` accepts.
FINDING_NAMES: frozenset[str] = RULE_NAMES | CAUSES | SEVERITIES
