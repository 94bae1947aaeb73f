"""What the writer of a log holds: of processes that come and go no more than of the latest."""

import msgspec

from tests.session.records import process, steps
from tests.state_size import size_of
from tuimon.records import LoopStack, RangePlace, StackCount, Stacks
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
