"""The GIL on literal sessions."""

import pytest

from tests.diagnosis.cpu import AUGMENT, BACKWARD, FORWARD, NO_GPU
from tests.session.records import by_rule, frames, loop, native, one_process, stacks, threads

LINES = frames(
    ("stats.py", 16, "run", "total += n % 7", True),
    ("stats.py", 20, "run", "time.sleep(1)", True),
    ("feed.py", 4, "feed", "ready.put(batch())", True),
    ("feed.py", 9, "batch", "rows.append(0.9 * x)", True),
    ("train.py", 10, "main", "x, y = ready.get()", True),
    ("/lib/python3.11/queue.py", 171, "get"),
    ("/lib/python3.11/threading.py", 327, "wait"),
    ("stats.py", 30, "run", "records.append(eval(line))", True),
    ("feed.py", 20, "run", "pass", True, "", "", None, None, (), True, (), True),
    ("/lib/site-packages/psutil/_pslinux.py", 1880, "memory_info"),
    first=12,
)
FEEDS, AT_QUEUE = [14, 15], [16, 17, 18]


def found(main_cpu, other_cpu, other_line=12, main_delay=0.0, asleep=0, more=()):
    rows = ((100, "python", main_cpu, "running", main_delay), (101, "statistics", other_cpu, "running", 0.0))
    used = threads(8, *rows, cpu_ratio=main_cpu + other_cpu)
    beside = [(101, "statistics", [line], n) for line, n in ((other_line, 40), (13, asleep)) if n]
    seen = stacks(8, (BACKWARD, 40), beside=beside, window_s=2.0)
    return by_rule(one_process(AUGMENT, LINES, loop(8, {"forward": 40, "backward": 60}), used, seen, *more))


def test_a_thread_that_computes_in_python_holds_up_the_training():
    finding = found(0.2, 0.8)["gil_contention"]
    assert (finding.severity, finding.where[0].line) == ("critical", 16)
    assert finding.share_of_step == pytest.approx(0.8)
    assert [(fix.estimated_speedup, *fix.gain) for fix in finding.fixes] == [pytest.approx((5, 1 / 0.3, 5))]
    assert "about 80 % of the time for the GIL" in finding.headline


def test_no_more_is_reported_than_the_training_thread_lost():
    assert found(0.85, 0.8)["gil_contention"].share_of_step == pytest.approx(0.15)


def test_moving_the_work_gains_all_of_the_wait_but_for_what_looks_may_be_off():
    (move,) = found(0.6, 0.8)["gil_contention"].fixes
    assert (move.estimated_speedup, *move.gain) == pytest.approx((1 / 0.6, 1 / 0.7, 1 / 0.6))


def test_a_training_thread_that_runs_or_waits_for_a_core_is_not_held_up():
    assert "gil_contention" not in found(0.97, 0.8)
    assert "gil_contention" not in found(0.2, 0.8, main_delay=0.8)


def test_where_the_thread_waits_it_holds_nothing_and_another_line_is_named():
    assert found(0.2, 0.8, asleep=60)["gil_contention"].where[0].line == 16


def test_a_thread_that_only_waits_is_told_to_wait_in_a_queue():
    finding = found(0.2, 0.8, other_line=20)["gil_contention"]
    assert finding.headline.endswith("thread statistics, which takes 80 % of a core, above all in a polling loop")
    assert [fix.action for fix in finding.fixes] == ["let it wait: queue.Queue(maxsize), Event.wait(), Condition"]


def test_a_thread_of_a_library_is_named_with_the_option_that_leaves_it_out():
    name = "Thread-2 (peak_monitor_func)"
    used = threads(8, (100, "python", 0.2, "running", 0.0), (101, name, 0.8, "running"), cpu_ratio=1.0)
    seen = stacks(8, (BACKWARD, 40), beside=[(101, name, [21], 40)], window_s=2.0)
    finding = by_rule(one_process(AUGMENT, LINES, loop(8, {"forward": 40, "backward": 60}), used, seen))
    told = finding["gil_contention"]
    assert f"held by thread {name}, which takes 80 % of a core, above all in figures of processes" in told.headline
    assert [fix.action.split(",")[0] for fix in told.fixes] == ["set skip_memory_metrics=True in TrainingArguments"]


def test_a_thread_for_which_no_batch_waits_may_work_less_often():
    code = native(8, (101, ("interpreter", "", 95), ("libc", "", 5)))
    (fix,) = found(0.2, 0.8, more=(code,))["gil_contention"].fixes
    assert fix.action.startswith("do it less often, or vectorise it: the interpreter has 95 %")


def test_an_update_that_waits_for_the_gil_does_not_count_as_the_updates():
    phases = {"forward": 20, "backward": 30, "optimizer": 50}
    used = threads(8, (100, "python", 0.2, "running", 0.0), (101, "statistics", 0.8, "running"), cpu_ratio=1.0)
    seen = stacks(8, (BACKWARD, 40), beside=[(101, "statistics", [12], 40)], window_s=2.0)
    findings = by_rule(one_process(AUGMENT, LINES, loop(8, phases), used, seen))
    assert "gil_contention" in findings and "optimizer_bound" not in findings


def fed(main_cpu, thread_cpu, at_queue):
    """What is found of a thread that fills a queue, where so many of 100 samples wait for it."""
    rows = ((100, "python", main_cpu, "running", 0.0), (101, "feeder", thread_cpu, "running", 0.0))
    used = threads(8, *rows, cpu_ratio=main_cpu + thread_cpu)
    main = [(stack, n) for stack, n in ((AT_QUEUE, at_queue), (FORWARD, 80 - at_queue), (BACKWARD, 20)) if n]
    seen = stacks(8, *main, beside=[(101, "feeder", FEEDS, 100)], window_s=5.0)
    return by_rule(one_process(NO_GPU, AUGMENT, LINES, loop(8, {"between": 80, "backward": 20}), used, seen))


def test_what_makes_the_batches_sets_the_pace_in_a_process_of_its_own():
    finding = fed(0.4, 0.7, at_queue=0)["gil_contention"]
    cheaper, moved = finding.fixes
    assert cheaper[1] == pytest.approx(1 / 0.4)
    assert moved[1] == pytest.approx(1 / 0.7)
    assert "sets the pace" in moved.action


def test_where_the_rest_of_the_step_takes_as_long_moving_gains_as_much():
    fixes = fed(0.6, 0.4, at_queue=0)["gil_contention"].fixes
    assert [fix[1] for fix in fixes] == pytest.approx([1 / 0.6])


@pytest.mark.parametrize(("at_queue", "rule"), [(20, "gil_contention"), (50, "input_bound")])
def test_a_thread_that_is_waited_for_at_a_queue_and_for_the_gil_is_one_finding(at_queue, rule):
    lost = 0.7
    findings = fed(1.0 - lost, 0.9, at_queue)
    assert [name for name in findings if name in ("gil_contention", "input_bound")] == [rule]
    finding = findings[rule]
    assert finding.where[0].function == "batch"
    told = lost if rule == "gil_contention" else finding.share_of_step  # what it takes besides is not in that
    assert finding.estimated_speedup == pytest.approx(1 / (1.0 - told), rel=0.2)
