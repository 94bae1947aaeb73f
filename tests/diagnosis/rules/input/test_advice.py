"""The fixes of the input rule on literal sessions: each with a gain of its own, the surest first."""

import math

import pytest
from msgspec.structs import replace

from tests.diagnosis.cpu import BACKWARD, run, workers
from tests.session.records import frames, process, stacks, thread, threads
from tuimon.diagnosis.step_model import SLOWDOWN_OF_REST
from tuimon.records import Frame


def test_each_fix_has_a_gain_of_its_own_and_the_surest_comes_first():
    first, *_ = run({"data": 80, "forward": 20}, stacks(12, ([3, 4, 1], 60)))
    free, loader = first.fixes
    assert loader.action.startswith("set num_workers=2 (now 0)")
    on_two_cores = (2, 1.3, 2)  # which are worth 1.3 at least
    assert (loader.estimated_speedup, *loader.gain) == pytest.approx(on_two_cores, rel=0.05)
    assert free.action.startswith("make augment() data.py:31 cheaper")
    gained = 5  # all of it; the ends are no further apart than a factor of two
    assert (free.estimated_speedup, *free.gain) == pytest.approx((gained, gained / 2, gained))
    assert (first.action, first.estimated_speedup) == free[:2]
    many, *_ = run({"data": 80, "forward": 20}, stacks(12, ([3, 4, 1], 60)), cpu_count=16)
    assert many.action.startswith("set num_workers=") and many.estimated_speedup > 3  # with cores enough


def test_workers_gain_no_more_than_the_cores_can_give_though_a_line_looks_like_a_wait():
    """Without a GPU ``tolist()`` waits for nothing: the training thread is on a core all the time."""
    lists = frames(("data.py", 9, "__getitem__", "return values[begin:end].tolist()", True), first=30)
    busy = thread(12, 0.99)
    first, *_ = run({"data": 65, "forward": 35}, lists, busy, stacks(12, ([3, 4, 30], 60)))
    loader = next(fix for fix in first.fixes if fix.action.startswith("set num_workers=2"))
    assert loader.gain.high <= 2.0 / 0.99 + 1e-9  # the part that waits needs no core


def test_no_more_workers_than_keep_the_cores_busy():
    """Measured on 2 cores, whole runs without workers, with 2, with 8: 7.9, 7.5, 7.9 s."""
    busy = threads(12, (100, "python", 1.0, "running"), cpu_ratio=1.6)
    first, *_ = run({"data": 59, "forward": 21, "backward": 20}, stacks(12, ([3, 4, 1], 60)), busy, cpu_count=4)
    (loader,) = (fix for fix in first.fixes if fix.action.startswith("set num_workers=2 (now 0)"))
    assert loader.estimated_speedup == pytest.approx(2.14, rel=0.02)


def test_the_loops_own_line_only_takes_the_items():
    """Nobody can vectorise ``main()``, which trains, nor the package that makes the items that its line fetches."""
    reads = frames(("/v/site-packages/nice/data.py", 41, "read"), first=30)
    first, *_ = run({"data": 80, "forward": 20}, reads, stacks(12, ([3, 4, 30], 60), (BACKWARD, 15)))
    assert first.action == "make read() data.py:41, called by main() train.py:44 cheaper (cache what it makes)"


@pytest.mark.parametrize(
    ("leaf", "facts", "how"),
    [
        (1, {}, "(vectorise or cache it)"),
        (1, {"gpu_uuids": ["GPU-0"]}, "(vectorise, cache, or move it to the GPU)"),
        (30, {"gpu_uuids": ["GPU-0"]}, "cache what __getitem__() data.py:35 reads, or read and write in a thread"),
    ],
)
def test_work_moves_to_the_gpu_only_if_there_is_one_and_it_is_no_wait(leaf, facts, how):
    reads = frames(("data.py", 35, "__getitem__", "with open(path) as file:", True), first=30)
    findings = run({"data": 80, "forward": 20}, process(**facts), reads, stacks(12, ([3, 4, leaf], 60)))
    assert any(how in fix.action for fix in findings[0].fixes)


def test_more_workers_come_before_a_line_that_may_cost_nothing():
    remote = frames(("data.py", 95, "download", "time.sleep(0.01)", True), first=30)
    idle = thread(12, 0.1, state="waiting")
    first, *_ = run({"data": 96, "forward": 4}, remote, idle, *workers(2, 0.03, ([0, 30], 40)))
    more, free = first.fixes
    assert more.action == "set num_workers=8 (now 2) on this 2-core machine: each computes only 3 % of its time"
    at_least = 4 / (1 + SLOWDOWN_OF_REST * (1 - 1 / 4))  # what is left may take longer
    assert (more.estimated_speedup, *more.gain) == pytest.approx((4, at_least, 4), rel=0.02)
    assert free.action == "remove or shorten the sleep at download() data.py:95, unless it limits the pace on purpose"
    gained = 100 / 6  # a batch has to be taken over
    assert (free.estimated_speedup, *free.gain) == pytest.approx((gained, gained / 2, math.inf), rel=0.02)


@pytest.mark.parametrize(
    ("number", "ranks", "high", "advised"),
    [(2, None, 2.0, ["make"]), (4, None, 2.5, ["make"]), (4, 2, 2.0, ["make"]), (1, None, None, ["set", "make"])],
)
def test_what_other_workers_take_is_all_that_skipping_it_saves_and_more_workers_would_make_it_as_well(
    number, ranks, high, advised
):
    """A batch takes 100 ms, the rest of a step 40 ms."""
    skips = Frame("data.py", 40, "__iter__", "for n, x in enumerate(self.read()):", True, skips=True)
    whole = replace(frames(first=30), frames=[skips])
    idle = thread(12, 0.2, state="waiting")
    phases = {"data": 60, "forward": 40}
    first, *_ = run(
        phases, process(world_size=ranks), whole, idle, *workers(number, 0.98, ([0, 30, 1], 40)), cpu_count=16
    )
    fixes = sorted(first.fixes, key=lambda fix: fix.action, reverse=True)
    assert [fix.action.split()[0] for fix in fixes] == advised
    assert ("skip the records of other workers" in fixes[-1].action) is (high is not None)
    assert high is None or fixes[-1].gain.high == pytest.approx(high, rel=0.05)


def test_cores_that_others_have_do_not_hide_what_a_cheaper_item_gains():
    """On cores of its own a batch would take half as long: all that is left of them goes to making batches."""
    trainer = thread(12, 0.15, 0.2, state="waiting")
    making = workers(2, 0.46, ([0, 1], 40), delay=0.48)
    first, *_ = run({"data": 73, "forward": 10, "backward": 15, "other": 2}, trainer, *making)
    assert first.rule == "input_bound"
    assert first.severity == "critical"
    cheaper, *_ = (fix for fix in first.fixes if fix.action.startswith("make augment() data.py:31 cheaper"))
    assert cheaper.estimated_speedup > 2
