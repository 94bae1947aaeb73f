"""Which finding comes first, and which are told by another."""

from __future__ import annotations

from dataclasses import replace

from tuimon.diagnosis.finding import Finding

SEVERITY = {"critical": 0, "warning": 1, "info": 2, "benign": 3}
#: Rules that contradict "the loop is in order".
_OUT_OF_ORDER = frozenset(
    {"cpu_oversubscribed", "input_bound", "side_work", "optimizer_bound", "straggler_rank", "gil_contention", "hang"}
)


def ranked(findings: list[Finding]) -> list[Finding]:
    """By severity, then by the share of the step: the first is what to fix first.

    What others do to the run comes after what it does to itself: that is in the user's own hands.
    """
    return sorted(findings, key=lambda f: (SEVERITY[f.severity], f.rule == "neighbour", -(f.share_of_step or 0.0)))


def folded(findings: list[Finding]) -> list[Finding]:
    """Without those that another one explains or contradicts.

    Too few cores are why the workers are slow: with ``input_bound`` that is evidence, not a second finding. A hang
    makes all shares things of the past. A loop with something to fix is not told to be in order.
    """
    by_rule = {finding.rule: finding for finding in findings}
    if "hang" in by_rule:
        return [by_rule["hang"]]
    data, cores = by_rule.get("input_bound"), by_rule.get("cpu_oversubscribed")
    if data is not None and cores is not None and data.evidence.get("workers"):
        evidence = {**data.evidence, "cores_waited_for": cores.evidence["cores_waited_for"]}
        by_rule["input_bound"] = replace(data, evidence=evidence, action=f"{data.action}; {cores.action}")
        del by_rule["cpu_oversubscribed"]
    _fold_collections(by_rule)
    if "cpu_oversubscribed" in by_rule:
        _drop_benign(by_rule, "neighbour")
        by_rule.pop("optimizer_bound", None)  # its many small parallel loops suffer most from too few cores
    if _OUT_OF_ORDER & by_rule.keys():
        by_rule.pop("compute_bound_cpu", None)
    return list(by_rule.values())


def _fold_collections(by_rule: dict[str, Finding]) -> None:
    """Collections that the loop asks for itself are the side work they show up as."""
    side, pauses = by_rule.get("side_work"), by_rule.get("gc_pauses")
    if side is not None and pauses is not None and pauses.where and pauses.where[0] in side.where:
        by_rule["side_work"] = replace(side, evidence={**side.evidence, "gc_share": pauses.evidence["gc_share"]})
        del by_rule["gc_pauses"]


def _drop_benign(by_rule: dict[str, Finding], rule: str) -> None:
    if rule in by_rule and by_rule[rule].severity == "benign":
        del by_rule[rule]
