"""A late rank on literal sessions."""

import pytest

from tests.diagnosis.cpu import AUGMENT, BACKWARD, FORWARD, NO_GPU
from tests.session.records import by_rule, extend, frames, header, loop, rank, session_of, stacks, thread


def ranks(late_phases, other_phases, stack):
    of_each = (rank(0), loop(8, other_phases)), (rank(1), loop(8, late_phases, pid=101))
    return by_rule(session_of(header(), AUGMENT, OWN_WORK, of_each, stacks(8, (BACKWARD, 20), (stack, 60), pid=101)))


OWN_WORK = frames(
    ("data.py", 31, "blur", "return kernel @ image", True),
    ("train.py", 34, "write", "imageio.imwrite(path, x)", True),
    first=20,
)


@pytest.mark.parametrize(
    ("phase", "stack", "place", "mend"),
    [
        ("data", [3, 4, 20], "blur() data.py:31", "make its batches as cheap as the others', and its reads as fast"),
        ("other", [21], "write() train.py:34", "do this side work less often, or in the background"),
        ("forward", FORWARD, "model() train.py:46", "compare its batches and its machine with the others'"),
    ],
)
def test_the_rank_that_waits_least_in_backward_is_the_culprit(phase, stack, place, mend):
    found = ranks({phase: 60, "backward": 40}, {phase: 20, "backward": 80}, stack)["straggler_rank"]
    assert (found.severity, found.evidence["rank"], found.share_of_step) == ("critical", 1, pytest.approx(0.4))
    assert found.headline == f"rank 0 waits 40 % of the time for rank 1, which is 40.0 ms late, mostly in {phase}"
    assert found.action == f"rank 1 is 40.0 ms late in {place}: {mend}"


def test_a_late_stage_of_a_pipeline_gives_layers_to_those_that_wait():
    schedule = frames(
        ("train.py", 11, "main", "schedule.step(x)", True),
        ("/lib/site-packages/torch/distributed/pipelining/schedules.py", 683, "_wait_batch_p2p"),
        first=30,
    )
    waits, works = stacks(8, ([30, 31], 60), (BACKWARD, 40)), stacks(8, (BACKWARD, 20), (FORWARD, 60), pid=101)
    of_each = (
        (rank(0), loop(8, {"forward": 20, "backward": 80})),
        (rank(1), loop(8, {"forward": 60, "backward": 40}, pid=101)),
    )
    found = by_rule(session_of(header(), AUGMENT, schedule, of_each, waits, works))["straggler_rank"]
    assert found.action == "move layers from rank 1's stage of the pipeline to those that wait"
    assert found.share_of_step == pytest.approx(0.4)
    assert found.fixes[0].gain.high <= 1 / (1 - 0.4 / 2) + 0.1  # half of what moves is work of the other stage


def test_a_short_backward_without_anything_longer_is_no_straggler():
    assert "straggler_rank" not in ranks({"forward": 20, "backward": 50}, {"forward": 20, "backward": 80}, FORWARD)


def trained(*of_each, late=2, counted=((BACKWARD, 20), (FORWARD, 60)), state="running", gc_ns=0):
    """Ranks of (phases, CPU of the training thread, run-queue delay); the samples are of the late one."""
    session = session_of(header(cpu_count=16), AUGMENT, BARRIER)
    for number, (phases, cpu, delay) in enumerate(of_each):
        pid, (its, gc) = 100 + number, (state, gc_ns) if number == late else ("running", 0)
        ran = [thread(t, cpu, delay, pid=pid, state=its) for t in range(1, 12)]
        extend(session, rank(number, of=len(of_each)), ran, loop(11, phases, pid=pid, gc_ns=gc))
    return by_rule(extend(session, stacks(11, *counted, pid=100 + late)))


BARRIER = frames(
    ("train.py", 30, "main", "dist.barrier()", True),
    ("/lib/site-packages/torch/distributed/distributed_c10d.py", 2000, "barrier"),
    ("train.py", 31, "save", "torch.save(state, path)", True),
    ("/lib/site-packages/torch/serialization.py", 900, "save"),
    first=12,
)
EVEN = {"forward": 20, "backward": 80}


def test_a_rank_that_is_late_inside_backward_is_found_by_who_sleeps_there():
    finding = trained((EVEN, 0.5, 0.0), (EVEN, 0.5, 0.0), (EVEN, 0.95, 0.0))["straggler_rank"]
    assert (finding.evidence["rank"], finding.evidence["phase"], finding.where[0].line) == (2, "backward", 48)
    assert finding.share_of_step == pytest.approx(0.45)


def test_a_longer_backward_follows_a_longer_forward():
    """The late rank has 2.4x the work in its model: its line is in the forward pass."""
    even = {"forward": 10, "backward": 86, "optimizer": 4}  # 25 ms of backward are its own
    late = {"forward": 24, "backward": 72, "optimizer": 4}
    finding = trained((even, 0.4, 0.0), (even, 0.4, 0.0), (late, 0.88, 0.0))["straggler_rank"]
    assert finding.headline.endswith("48.0 ms late, mostly in forward")
    assert (finding.evidence["rank"], finding.evidence["phase"], finding.where[0].line) == (2, "forward", 46)


def test_the_line_is_its_own_work_and_not_where_it_waits_itself():
    even, side = {"forward": 10, "backward": 80, "other": 10}, {"forward": 10, "backward": 30, "other": 60}
    lines = ((BACKWARD, 30), ([12, 13], 40), ([14, 15], 35))
    finding = trained((even, 0.2, 0.0), (even, 0.2, 0.0), (side, 0.6, 0.0), counted=lines)["straggler_rank"]
    assert (finding.evidence["phase"], finding.where[0].line) == ("other", 31)


def test_two_ranks_of_one_slow_machine_are_both_named():
    late = {"forward": 60, "backward": 40}
    finding = trained(*[(EVEN, 0.4, 0.0)] * 3, (late, 0.9, 0.0), (late, 0.88, 0.0), late=3)["straggler_rank"]
    assert finding.evidence["also_late"] == "4"
    assert finding.headline.startswith("the others wait 50 % of the time for ranks 3, 4, ")


def test_a_stopped_process_a_starved_one_and_collections_are_said_to_be_the_reason():
    late = {"forward": 40, "backward": 60}
    even = [(EVEN, 0.3, 0.05)] * 2
    stopped = trained(*even, (late, 0.3, 0.05), state="stopped")["straggler_rank"]
    assert stopped.headline.endswith("for rank 2, which is stopped 100 % of the time")
    starved = trained(*even, (late, 0.3, 0.6))["straggler_rank"]
    assert "waits 60 % of the time for a core" in starved.headline
    collecting = trained(*even, (late, 0.9, 0.1), gc_ns=400_000_000)["straggler_rank"]
    assert "in the garbage collector" in collecting.headline


def test_work_for_which_the_others_do_not_wait_is_no_straggler():
    longer = {"forward": 20, "backward": 50, "other": 30}
    assert "straggler_rank" not in trained((EVEN, 0.97, 0.0), (EVEN, 0.97, 0.0), (longer, 0.97, 0.0))


def test_ranks_that_all_wait_for_cores_are_late_by_chance():
    even = [(EVEN, 0.3, 0.2)] * 3
    assert "straggler_rank" not in trained(*even[:2], (EVEN, 0.3, 0.35))
    assert "straggler_rank" in trained(*even[:2], (EVEN, 0.3, 0.55))


def attached(*of_each, samples=100):
    """Ranks without markers of (share of the samples in the model, the rest in backward; CPU; run-queue delay)."""
    session = session_of(header(cpu_count=16), NO_GPU, AUGMENT)
    for pid, (forward, cpu, delay) in enumerate(of_each, 100):
        model = round(forward * samples)
        session.add(rank(pid - 100, of=3, markers=False))
        for t in range(1, 12):
            extend(session, thread(t, cpu, delay, pid=pid))
            extend(session, stacks(t, (FORWARD, model), (BACKWARD, samples - model), pid=pid))
    return by_rule(session)


def test_without_markers_shares_show_the_rank_that_the_others_wait_for():
    found = attached((0.2, 0.5, 0.0), (0.6, 0.95, 0.0), (0.2, 0.5, 0.0))
    finding = found["straggler_rank"]
    assert finding.headline == "the others wait 45 % of the time for rank 1, which takes longer in forward"
    assert (finding.severity, finding.where[0].line, finding.evidence["waited_ms"]) == ("critical", 46, None)
    assert "comm_bound" not in found


def test_without_markers_one_without_a_core_is_told_with_its_reason():
    finding = attached((0.2, 0.5, 0.0), (0.6, 0.5, 0.45), (0.2, 0.5, 0.0))["straggler_rank"]
    assert finding.headline.endswith("for rank 1, whose training thread waits 45 % of the time for a core")


def test_without_markers_no_rank_is_later_than_one_that_waits_for_nobody():
    finding = attached((0.2, 0.5, 0.0), (0.6, 0.98, 0.0))["straggler_rank"]  # the third was not measured
    assert finding.headline == "rank 0 waits 48 % of the time for rank 1, which takes longer in forward"


@pytest.mark.parametrize(
    "of_each",
    [
        [(0.2, 0.5, 0.0)] * 3,
        [(0.6, 0.9, 0.05), (0.6, 0.95, 0.0), (0.6, 0.97, 0.0)],  # it waits a little for each
        [(0.2, 0.5, 0.0), (0.6, 0.9, 0.0)],  # the third was not measured, and may be later
    ],
)
def test_without_markers_none_is_late_where_shares_do_not_show_it(of_each):
    assert "straggler_rank" not in attached(*of_each)
