"""What the writer of a log holds: of processes that come and go no more than of the latest."""

import msgspec

from tests.session.records import process, steps
from tests.state_size import size_of
from tuimon.records import LoopStack, RangePlace, StackCount, Stacks
from tuimon.sources.log.coarse.steadiness import Steadiness
from tuimon.sources.log.facts import Facts


def records_of(pid):
    """What a training that ends soon leaves in the log."""
    stack = StackCount(pid, "MainThread", [1, 2, 3], 2)
    sampled = {"rate_hz": 20.0, "samples": 40, "stacks": [stack], "cost_cpu_s": 0.01}
    loop = [LoopStack("backward", [1, 2])]
    yield process(pid=pid, start_unix_s=1.7e9 + pid)
    yield Stacks(t=1.0, pid=pid, window_s=2.0, parked=[(pid, f"Thread-{pid}")], loop=loop, **sampled)
    yield steps(1.0, {"data": 1.0}, pid=pid, range_places=[RangePlace("mine", "train.py", f"f{pid}", 1, 2)])
    yield process(pid=pid, start_unix_s=1.7e9 + pid, ended=True)


def test_a_log_keeps_no_more_of_six_hundred_processes_than_of_a_hundred():
    facts, sizes = Facts(), {}
    for count in range(1, 601):
        for record in records_of(1000 + count):
            own = msgspec.json.decode(msgspec.json.encode(record), type=type(record))  # shares nothing
            facts.keep(own)
            facts.complete(own)
        if count in (100, 600):
            sizes[count] = size_of(facts)
    assert sizes[600] < 1.05 * sizes[100]


def test_whether_a_run_is_steady_is_told_by_no_process_that_ended_though_its_last_window_comes_later():
    steadiness, sizes = Steadiness(), {}
    for count in range(1, 601):
        pid = 1000 + count
        steadiness.add_record(process(pid=pid, role="other"))
        steadiness.add_record(process(pid=pid, role="other", ended=True))
        for at in range(10):
            steadiness.add_record(steps(count + at, {"data": 1.0, "forward": 2.0}, pid=pid))
        if count in (100, 600):
            sizes[count] = size_of(steadiness)
    assert sizes[600] - sizes[100] < 500 * 200  # bytes: its number alone


def test_steps_of_a_later_process_with_the_same_pid_are_compared_again():
    steadiness = Steadiness()
    for record in (process(pid=7), process(pid=7, ended=True), process(pid=7, t=50.0)):
        steadiness.add_record(record)
    usual = [steadiness.add_record(steps(100.0 + at, {"forward": 10.0}, pid=7)) for at in range(60)]
    assert not any(usual[15:])
    assert any(steadiness.add_record(steps(160.0 + at, {"forward": 90.0}, pid=7)) for at in range(15))
