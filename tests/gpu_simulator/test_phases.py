"""GPU time per phase, as the monitor tells it, against what the simulated GPU really did."""

from itertools import cycle

import pytest

from tests.gpu_simulator import loops
from tests.gpu_simulator.comparison import shares
from tests.gpu_simulator.machine import MS, US
from tests.gpu_simulator.sessions import simulated
from tests.gpu_simulator.training import Training
from tuimon.interval import NONE

#: Of a phase; and of a step, for phases that are but microseconds long: timing itself takes the CPU some.
OF_PHASE, OF_STEP = 0.02, 0.01
QUICK, SLOW = (pytest.mark.parametrize("ends", [end], indirect=True) for end in ("quick", "slow"))
PHASES = ("data", "forward", "backward", "optimizer", "other")


def assert_true(training, records, slack=OF_STEP, phases=PHASES):
    told = shares(records)
    assert told.steps >= 50
    for name in phases:
        true = training.truth.share(name)
        assert told.phases[name].span == pytest.approx(true, rel=OF_PHASE, abs=slack), name
    return told


def run(turn, seconds=15):
    training = Training()
    return training, training.run(turn, seconds)


@pytest.mark.parametrize(("kind", "ends"), zip(loops.LOOPS, cycle(["quick", "slow"])), indirect=["ends"])
def test_gpu_time_of_each_phase_is_the_truth_and_its_idle_time_within_its_bounds(kind, ends):
    training, records = simulated(kind)
    told = assert_true(training, records)
    assert sum(told.phases[name].span for name in PHASES) == pytest.approx(1)
    for name in PHASES:
        found, idle = told.phases[name], training.truth.idle_ns[name] / training.truth.total_ns
        assert found.idle.low - OF_STEP <= idle <= found.idle.high + OF_STEP, name


@QUICK
def test_what_is_certain_of_idle_time_is_all_of_it_where_the_gpu_starves_and_nothing_where_it_never_waits(ends):
    training, records = simulated("data_starved")
    told, idle = shares(records), training.truth.idle_ns["data"] / training.truth.total_ns
    assert idle > 0.6
    assert told.phases["data"].idle.low == pytest.approx(idle, rel=0.02)
    assert told.idle.low == pytest.approx(idle, rel=0.02)
    for kind in ("gpu_bound", "queue_full"):
        told = shares(simulated(kind)[1])
        assert told.idle == NONE


def test_launches_that_hold_the_gpu_back_are_paced():
    def turn(run):
        run.fetch(0.1 * MS)
        run.kernels(50, 4 * US, 12 * US)
        run.cpu.work(0.05 * MS)  # all is done when the CPU comes to the backward
        run.backward(lambda: (run.kernels(50, 4 * US, 12 * US), run.cpu.work(0.05 * MS)))
        run.step(lambda: (run.kernels(20, 4 * US, 12 * US), run.cpu.work(0.05 * MS)))

    _, records = run(turn, seconds=5)
    told = shares(records)
    assert told.phases["backward"].idle.width == pytest.approx(told.phases["backward"].span, rel=0.01)
    assert told.idle.high > 0.95


def test_side_work_before_a_fetch_is_no_wait_for_data():
    def turn(run):
        run.cpu.work(3 * MS)  # a checkpoint: the GPU has long finished
        run.fetch(2 * MS)
        run.passes((10, 50 * US), (20, 50 * US), (5, 50 * US))

    training, records = run(turn)
    told = assert_true(training, records)
    assert told.phases["data"].idle.low == pytest.approx(told.phases["data"].span)
    assert told.phases["other"].idle.low == 0 < told.phases["other"].idle.high


def test_work_launched_between_update_and_fetch_is_all_that_can_be_taken_for_idleness():
    def turn(run):
        run.fetch(30 * MS)
        run.passes((30, 100 * US), (30, 200 * US), (10, 100 * US))
        run.kernels(4, 500 * US)  # averaged weights: 2 ms

    training, records = run(turn)
    told = shares(records)
    idle = training.truth.idle_ns["data"] / training.truth.total_ns
    assert idle - OF_STEP <= told.idle.low <= idle + 2 / 30


# -- loops of other shapes: the phases that events can tell apart in each


def accumulated(run):
    for _ in range(4):
        run.fetch(1 * MS, 0.1)
        run.kernels(20, 60 * US)
        run.backward(lambda: run.kernels(30, 70 * US))
    run.step(lambda: run.kernels(10, 50 * US))


def two_optimizers(run):
    """Between the first update and the second backward, events cannot tell side work from forward."""
    run.fetch(1 * MS)
    for optimizer in (1, 2):
        run.truth.enter("forward", run.stream)
        run.kernels(20, 100 * US)
        run.backward(lambda: run.kernels(30, 120 * US))
        run.step(lambda: run.kernels(10, 50 * US), optimizer)


def evaluated_beside(run):
    """The wait for the first batch after an evaluation is the evaluation's."""
    for _ in range(30):
        loops.data_starved(run)
    for _ in range(20):
        run.fetch(1 * MS, iterator=9, label="eval")
        run.kernels(20, 60 * US)
    run.truth.enter("eval", run.stream)
    run.exhausted(iterator=9)


def with_a_closure(run):
    def closure():
        for _ in range(5):
            run.truth.enter("forward", run.stream)
            run.kernels(20, 60 * US)
            run.backward(lambda: run.kernels(30, 70 * US), then="optimizer")

    run.fetch(1 * MS)
    run.step(lambda: (closure(), run.kernels(10, 50 * US)))


def without_optimizer_and_loader(run):
    run.truth.enter("forward", run.stream)
    run.kernels(20, 60 * US)
    run.backward(lambda: run.kernels(30, 70 * US), then="forward")
    run.kernels(10, 40 * US)


def copied_on_a_side_stream(run):
    run.use(number=1)
    run.stream.launch(4 * MS)
    copied_ns = run.stream.record()
    run.use(number=0)
    run.fetch(0.5 * MS)
    run.stream.wait(copied_ns)
    run.passes((40, 60 * US), (60, 80 * US), (15, 50 * US))


@pytest.mark.parametrize(
    ("turn", "phases", "slack"),
    [
        (accumulated, PHASES, OF_STEP),
        (two_optimizers, ("forward", "backward", "optimizer"), OF_STEP),
        (evaluated_beside, PHASES, 0.03),
        (with_a_closure, ("forward", "backward"), OF_STEP),
        (without_optimizer_and_loader, ("backward",), OF_STEP),
        (copied_on_a_side_stream, PHASES, OF_STEP),
    ],
)
def test_other_shapes_of_loops(turn, phases, slack):
    assert_true(*run(turn, seconds=40 if turn is evaluated_beside else 20), slack, phases)
