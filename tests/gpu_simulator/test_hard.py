"""What may not confuse: lost markers, events that never happen, numbers that come again, other devices and streams."""

import pytest

from tests.gpu_simulator import loops, machine
from tests.gpu_simulator.comparison import lead_errors_us, shares, timed
from tests.gpu_simulator.machine import MS, US
from tests.gpu_simulator.training import Training
from tuimon.agent.ring import layout
from tuimon.records import Steps, TorchMemory


def assert_right(training, records, lead_us=50):
    told = shares(records)
    assert told.steps >= 8
    for name in ("data", "forward", "backward", "optimizer"):
        assert told.phases[name].span == pytest.approx(training.truth.share(name), rel=0.03, abs=0.01), name
    errors = lead_errors_us(training, records)
    assert errors
    assert max(error for error, _ in errors) < lead_us


def test_numbers_come_again():
    training = Training(20)
    training.clock.events.latest_number = layout.LAST_EVENT - 100
    records = training.run(loops.data_starved, 30)
    numbers = {marker.flag for marker in training.markers if marker.kind == layout.GPU_TIME}
    assert {layout.FIRST_EVENT, layout.LAST_EVENT} <= numbers
    assert_right(training, records)


def test_a_device_that_hangs_for_a_while():
    training = Training(20)
    training.run(loops.data_starved, 5)
    training.device.lost = True
    silent = training.run(loops.data_starved, 20)
    training.device.lost = False
    assert sum(record.steps for record in timed(silent)) <= 24  # those that were met before, and told of later
    assert sum(record.count for record in silent if isinstance(record, Steps)) > 300
    assert shares(training.run(loops.data_starved, 15)).steps >= 50


def test_turns_that_change_their_stream_are_left_out():
    training = Training(20)

    def turn(run):
        run.use(number=0)
        run.fetch(30 * MS, 0.1)
        run.kernels(60, 80 * US)
        run.use(number=int(run.cpu.random.random() < 0.2))
        run.backward(lambda: run.kernels(90, 110 * US))
        run.use(number=0)
        run.step(lambda: run.kernels(20, 60 * US))

    records = training.run(turn, 30)
    assert shares(records).steps >= 50
    assert shares(records).phases["backward"].span == pytest.approx(
        90 * (110 * US + machine.current.gap_ns) / (31.1 * MS), rel=0.03
    )


def test_two_devices_in_one_process():
    training = Training(100, gpus=2)

    def turns(run):
        for device in (0, 1):
            run.use(device)
            for _ in range(200):
                loops.data_starved(run)

    records = training.run(turns, 40)
    by_device = {device: [r for r in timed(records) if r.device == device] for device in (0, 1)}
    for told in by_device.values():
        assert shares(told).steps >= 50
        assert shares(told).phases["data"].span == pytest.approx(training.truth.share("data"), rel=0.02)
    assert max(error for error, _ in lead_errors_us(training, records)) < 50
    memory = {record.device for record in records if isinstance(record, TorchMemory)}
    assert memory == {0, 1}


def test_markers_that_were_overwritten():
    training = Training(100)
    training.run(loops.data_starved, 10)
    for _ in range(5):
        training.run(loops.data_starved, 1)
        lost = training.run_unseen(loops.data_starved, 2)
        assert lost > 0
    records = training.run(loops.data_starved, 20)
    assert_right(training, records)


def test_a_monitor_that_comes_late():
    training = Training(100)
    training.run_unseen(loops.data_starved, 7)  # the count of the GPU's time began in there
    early = training.run(loops.data_starved, 3)
    assert shares(early).steps == 0 or timed(early)[0].total_ns > 0
    assert_right(training, training.run(loops.data_starved, 20))


def test_what_the_allocator_holds_is_told():
    training = Training()
    training.device.allocator = (5, 7, 2, 1, None, None, 6)
    told = [record for record in training.run(loops.data_starved, 25) if isinstance(record, TorchMemory)]
    assert 2 <= len(told) <= 3  # when it has changed, and every ten seconds
    assert {(r.device, r.allocated_bytes, r.reserved_bytes, r.alloc_retries, r.ooms) for r in told} == {(0, 5, 7, 2, 1)}
    assert {(r.peak_bytes, r.pinned_bytes) for r in told} == {(6, None)}
    training.device.allocator = (6, 7, 2, 1)
    changed = [record for record in training.run(loops.data_starved, 3) if isinstance(record, TorchMemory)]
    assert [record.allocated_bytes for record in changed] == [6]
