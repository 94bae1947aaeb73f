"""The launch lead, as the monitor tells it, against the truth; and that it is not told where it cannot be known."""

import math
from statistics import median

import pytest

from tests.gpu_simulator import loops
from tests.gpu_simulator.comparison import event_errors_us, lead_errors_us, timed, true_leads_us
from tests.gpu_simulator.machine import MS, SECOND
from tests.gpu_simulator.sessions import simulated
from tests.gpu_simulator.training import Training

pytestmark = pytest.mark.usefixtures("ends")

QUICK, SLOW = (pytest.mark.parametrize("ends", [end], indirect=True) for end in ("quick", "slow"))

#: The promise, wherever the GPU was idle once in the last ten seconds.
PROMISE_US = 50
#: Recording itself: the GPU comes to an event so much later than the CPU to its boundary, at least.
RECORDING_US = 15


def rarely_idle(every_s, turns=30):
    """Launches run 40 ms ahead; every so often the loop waits for the GPU for a few turns."""
    state = {"next_ns": 0, "left": 0}

    def turn(run):
        if run.cpu.now_ns >= state["next_ns"]:
            state.update(next_ns=run.cpu.now_ns + int(every_s * SECOND), left=turns)
        if state["left"]:
            state["left"] -= 1
            run.stream.synchronise()
        loops.gpu_bound(run)

    return turn


@pytest.mark.parametrize(
    ("kind", "ends"), [("launch_bound", "slow"), ("data_starved", "quick"), ("sync_item", "slow")], indirect=["ends"]
)
def test_leads_are_right_where_the_gpu_is_idle_now_and_then(kind):
    training, records = simulated(kind)
    errors = lead_errors_us(training, records)
    assert len(errors) >= 40
    assert max(error for error, _ in errors) < PROMISE_US
    assert max(width for _, width in errors) < PROMISE_US


@pytest.mark.parametrize(("drift_ppm", "ends"), [(-100, "quick"), (100, "slow")], indirect=["ends"])
def test_once_in_ten_seconds_is_enough(drift_ppm, seen):
    training = Training(drift_ppm)
    turn = rarely_idle(every_s=9.5)
    training.run(turn, 30)  # three times idle: by then the rate of the clocks is known
    seen.clear()
    training.run(turn, 20)
    errors = event_errors_us(training, seen)
    assert len(errors) >= 800
    assert max(error for error, _ in errors) < PROMISE_US
    assert max(width for _, width in errors) < PROMISE_US


@pytest.mark.parametrize(("drift_ppm", "ends"), [(-100, "slow"), (100, "quick")], indirect=["ends"])
def test_what_is_told_before_that_is_within_what_is_admitted(drift_ppm, seen):
    training = Training(drift_ppm)
    training.run(rarely_idle(every_s=9.5), 30)
    errors = event_errors_us(training, seen)
    assert len(errors) >= 50  # a record every two seconds
    assert max(width for _, width in errors) > 200
    assert all(error <= width + RECORDING_US for error, width in errors)


@pytest.mark.parametrize(("kind", "ends"), [("gpu_bound", "slow"), ("queue_full", "quick")], indirect=["ends"])
def test_a_gpu_that_is_never_idle_has_an_error_that_holds(kind, seen):
    training = Training(20)
    records = training.run(loops.LOOPS[kind], 30)
    errors = event_errors_us(training, seen)
    assert len(errors) >= 50
    assert all(error <= width + RECORDING_US for error, width in errors)
    assert all(lead.min_us > 5 * 1000 for record in timed(records) for lead in record.leads)


@SLOW
def test_what_cannot_be_known_is_not_told():
    training, records = simulated("transfer")
    told = [lead for record in timed(records) for lead in record.leads]
    assert min(true_leads_us(training, "fetch end")) > 5000
    assert [lead.median_us for lead in told] == [None] * len(told) != []
    assert sum(lead.idle_count for lead in told) == 0
    assert all(record.lead_error_us > 3000 for record in timed(records))


@QUICK
def test_idle_boundaries_are_counted():
    _, records = simulated("data_starved")
    drained = {lead.boundary: lead.idle_count / lead.count for record in timed(records) for lead in record.leads}
    assert drained["fetch end"] == 1
    assert drained["backward end"] == 0


def half_idle(run):
    run.fetch(0.4 * SECOND, 0.1)
    run.passes((20, 2 * MS), (20, 4 * MS), (5, 2 * MS))


@QUICK
@pytest.mark.parametrize(
    ("where", "width_us"), [("while it records", (0, 500)), ("before it records", (PROMISE_US, math.inf))]
)
def test_a_thread_that_is_always_interrupted_misleads_nobody(seen, where, width_us):
    """Other threads of the program hold the GIL; what was seen counts, not what was hoped for."""
    training = Training(20)
    if where == "while it records":
        training.device.slow_record_ns = 5 * MS
    else:
        training.interrupted_ns = lambda: training.cpu.random.uniform(0, 5 * MS)
    training.run(half_idle, 30)
    seen.clear()
    training.run(half_idle, 60)
    errors = event_errors_us(training, [each for each in seen if not each.stream_idle])
    assert len(errors) >= 25
    assert all(error <= width + RECORDING_US for error, width in errors)
    assert width_us[0] < median(width for _, width in errors) < width_us[1]


@SLOW
def test_interrupted_now_and_then_before_it_records_it_is_not_believed_then(seen):
    training = Training(20)
    training.interrupted_ns = lambda: 5 * MS if training.cpu.random.random() < 0.2 else 0
    training.run(loops.sync_item, 20)
    errors = event_errors_us(training, [each for each in seen if not each.stream_idle])
    assert len(errors) > 500
    assert median(error for error, _ in errors) < PROMISE_US
    assert sum(error < PROMISE_US for error, _ in errors) > 0.9 * len(errors)


@SLOW
def test_a_clock_that_is_set_begins_anew():
    training = Training(20)
    training.run(loops.data_starved, 15)
    training.gpus[0].epoch_ns -= 2 * MS  # as if the system's clock had been slewed by so much
    training.run(loops.data_starved, 5)
    errors = lead_errors_us(training, training.run(loops.data_starved, 15)[-12:])
    assert errors
    assert max(error for error, _ in errors) < PROMISE_US


@pytest.mark.parametrize(("drift_ppm", "ends"), [(100, "slow")], indirect=["ends"])
def test_a_quarter_of_an_hour_of_drift(drift_ppm, seen):
    def turn(run):
        run.fetch(2 * SECOND, 0.2)
        run.passes((2, 200 * MS), (2, 400 * MS), (1, 100 * MS))

    training = Training(drift_ppm)
    training.run(turn, 900 - 450)
    seen.clear()
    training.run(turn, 450)
    errors = event_errors_us(training, seen)
    assert len(errors) >= 40  # of steps of two seconds few are timed
    assert all(error <= width + RECORDING_US for error, width in errors)
    narrow = [error for error, width in errors if width < PROMISE_US]
    assert len(narrow) > 0.8 * len(errors)
    assert max(narrow) < PROMISE_US
