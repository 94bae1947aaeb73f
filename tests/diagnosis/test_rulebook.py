"""The rule table is complete, and names, order and needs follow from it."""

import re

import pytest

from tuimon.diagnosis.explain.page import thresholds_of
from tuimon.diagnosis.needs import NEEDS
from tuimon.diagnosis.rulebook import BY_NAME, CAUSES, FINDING_NAMES, RULE_NAMES, RULES, SEVERITIES

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def test_the_names_are_those_of_the_contract():
    assert {
        *("input_bound", "transfer_bound", "sync_point", "launch_bound", "queue_full", "spin_wait", "compute_bound"),
        *("compute_bound_cpu", "optimizer_bound", "side_work", "cpu_oversubscribed", "gil_contention", "gc_pauses"),
        *("allocator_retries", "memory_pressure", "throttled", "low_precision_unused", "small_batch"),
        *("straggler_rank", "comm_bound", "neighbour", "warmup", "step_time_drift", "hang"),
        *("gpu_health", "recompiles", "slow_setting", "idle_gpu", "placement", "not_ended", "unexplained_idle"),
    } == RULE_NAMES
    assert {
        *("no_workers", "workers_saturated", "slow_item", "slow_collate", "sampler", "disk_wait"),
        *("hand_rolled_loader", "hand_over", "rollout", "evaluation", "jump", "more_work", "slower_hour", "in_turn"),
        *("bfloat16", "float16", "float64", "tracer", "validation", "checkpoint", "network", "gave_up", "graph_breaks"),
        *("python", "growing", "copied", "out_of_memory", "exhausted", "anomaly", "allocator"),
        *("idle_workers", "padding", "repeated_backward", "unused_gradients", "few_sms", "memory_traffic", "low_power"),
        *("page_faults", "unused", "held", "model_on_cpu", "context", "other_streams", "few_products", "slices"),
    } == CAUSES
    assert FINDING_NAMES == RULE_NAMES | CAUSES | SEVERITIES


def test_no_two_rules_share_a_name():
    assert len(BY_NAME) == len(RULES)


@each_rule
def test_a_row_is_complete(rule):
    assert rule.judge.__doc__
    assert rule.title[0].isupper()
    assert rule.needs
    assert set(rule.needs) <= set(NEEDS)


@each_rule
def test_every_threshold_names_what_it_limits_and_where_it_comes_from(rule):
    for threshold in thresholds_of(rule):
        assert threshold.meaning
        assert re.search(
            r"https://|our choice|measured in (tests/scenarios|tests/gpu_simulator|bench)|as for |in any case",
            threshold.source,
        )
        assert "proposal" not in threshold.source


def test_every_kind_of_evidence_is_needed_by_a_rule():
    assert {need for rule in RULES for need in rule.needs} == set(NEEDS)
