"""Several ranks with a GPU each: what they wait for one another and exchange, told within its bounds."""

from functools import cache
from math import inf

import pytest
from msgspec import structs

from tests.altered import altered
from tests.diagnosis.gpu import FORWARD
from tests.gpu_simulator.machine import MS
from tests.gpu_simulator.ranks import Ranks
from tests.gpu_simulator.ranks_session import GATHER, LOOPS, records
from tests.session.records import session_of, stacks
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.evidence.ranks import waits_ms
from tuimon.diagnosis.judging import diagnose
from tuimon.diagnosis.verdicts import fold
from tuimon.node_ids import id_on_node, own_id
from tuimon.records import Gpu, TraceTaken
from tuimon.views.finding_text import evidence_rows
from tuimon.views.report.report import compared_ranks, report_of
from tuimon.views.scale import Axis
from tuimon.views.tui.panes.ranks_pane import strips

#: What clocks, ticks and our own events add, as a share of the step.
ERROR = 0.01
#: Bounds of idle time that are this far apart say what to mend first.
NARROW = 0.2


@cache
def run(kind, world_size=3):
    """The ranks, and their session."""
    ranks, found = records(kind, world_size)
    return ranks, session_of(*found)


def findings(kind):
    return {finding.rule: finding for finding in diagnose(run(kind)[1])}


@pytest.mark.parametrize("span", ["recent", "whole"])
@pytest.mark.parametrize("kind", LOOPS)
def test_what_is_certain_of_the_exchange_is_true_of_every_rank(kind, span):
    ranks, session = run(kind)
    evidence = evidence_of(session.over(span).of(ranks.ranks[0].ring.pid))
    told = evidence.exchanges
    assert len(told) == 3
    for rank in ranks.ranks:
        exchange = told[rank.ring.pid]
        assert exchange.share.low <= ranks.exchanging(rank.number) + ERROR
        assert exchange.waiting <= ranks.waited(rank.number) + ERROR
        assert ranks.exchanging(rank.number) <= exchange.share.high + ERROR


@pytest.mark.parametrize("kind", LOOPS)
def test_bounds_of_the_time_without_work_hold_for_every_rank_and_are_narrow(kind):
    ranks, session = run(kind)
    for rank in ranks.ranks:
        told = evidence_of(session.over("whole").of(rank.ring.pid)).gpu.steps.idle
        assert told.low - ERROR <= ranks.idle(rank.number) <= told.high + ERROR
        assert told.width <= NARROW


def traces(ranks, end_s):
    """Traces of all steps of these ranks."""
    for rank in ranks.ranks:
        own = 1.0 - ranks.idle(rank.number) - ranks.exchanging(rank.number) + rank.beside_ns / rank.truth.total_ns
        own_ns = round(own * rank.truth.total_ns)
        yield TraceTaken(t=end_s, pid=rank.ring.pid, begin_s=end_s - 1, end_s=end_s, file="trace.json",
                         steps=rank.steps, wanted=rank.steps, gpu_computing_ns=own_ns)  # fmt: skip


@pytest.mark.parametrize("kind", LOOPS)
def test_a_trace_of_some_steps_bounds_the_exchange_closely(kind):
    """The work of a few other steps, beside the time of all steps."""
    ranks, found = records(kind)
    few = Ranks(LOOPS[kind][0], 3, LOOPS[kind][1])
    few.run(20 * ranks.step_ns / 1e9)
    session = session_of(*found, *traces(few, found[-1].t))
    for rank in ranks.ranks:
        told = evidence_of(session.over("whole").of(rank.ring.pid)).exchange
        truth = ranks.exchanging(rank.number) - rank.beside_ns / rank.truth.total_ns
        assert told.share.low - ERROR <= truth <= told.share.high + ERROR
        assert told.share.width <= (
            0.3 if kind in ("apart", "uneven", "small kernels") else NARROW
        )  # their work differs


@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.4])
def test_a_trace_of_few_steps_whose_work_differs_bounds_the_exchange(seconds):
    ranks, found = records("uneven")
    few = Ranks(LOOPS["uneven"][0], 3, LOOPS["uneven"][1])
    few.run(seconds)
    told = evidence_of(session_of(*found, *traces(few, found[-1].t)).over("whole").of(ranks.ranks[0].ring.pid)).exchange
    assert told.share.low - ERROR <= ranks.exchanging(0) <= told.share.high + ERROR


def test_a_gpu_whose_tensor_cores_work_waits_for_nobody_meanwhile():
    first = fold(altered("links_busy"))[1][0]
    assert run("long exchange")[0].exchanging(0) <= first.evidence["exchange_at_most_share"] == pytest.approx(1 - 0.35)


def test_launches_that_come_earlier_may_gain_more_than_the_idle_time():
    """Without its launches a step takes 0.4 ms of data, 0.8 ms of kernels, and the exchange beside the others."""
    ranks, found = run("small kernels")[0], findings("small kernels")["launch_bound"]
    assert found.best.gain.low <= ranks.step_ns / (4.2 * MS)
    assert found.best.gain.high == inf
    assert found.evidence["exchange_at_least_share"] <= ranks.exchanging(0)


def test_passes_under_no_sync_show_what_the_exchange_takes():
    ranks, _ = run("accumulates")
    found = findings("accumulates")["comm_bound"]
    assert found.share_of_step == pytest.approx(ranks.exchanging(0), abs=0.02)
    assert found.evidence["rests_on"] == "no_sync"
    assert found.evidence["exchange_at_most_share"] - found.evidence["exchange_at_least_share"] <= 0.02
    assert found.estimated_speedup == pytest.approx(1 / (1 - ranks.exchanging(0)), rel=0.03)


@pytest.mark.parametrize(
    "kind", ["accumulates, in step", "exchanges each pass", "one pass", "apart", "no loader", "two losses"]
)
def test_nothing_is_told_of_ranks_that_hardly_wait_or_of_whom_it_is_not_known(kind):
    assert not findings(kind).keys() & {"comm_bound", "straggler_rank"}


def test_ranks_whose_work_differs_from_step_to_step_wait_for_whoever_comes_last():
    ranks, _ = run("uneven")
    found = findings("uneven")["comm_bound"]
    truth = min(ranks.waited(rank.number) for rank in ranks.ranks)
    assert 0.3 * truth <= found.share_of_step <= truth + ERROR
    assert found.evidence["waits_for_later_ranks_at_least_share"] >= found.share_of_step / 6
    assert "bucket or pack batches by length" in found.action
    assert found.estimated_speedup is None
    assert "straggler_rank" not in findings("uneven")


def test_ranks_on_nodes_whose_clocks_differ_are_compared_all_the_same():
    ranks, session = run("uneven")
    pids = [rank.ring.pid for rank in ranks.ranks]
    times = {pid: evidence_of(session.over("recent").of(pid)).gpu_time.exchanges for pid in pids}
    later = [exchange._replace(reached_s=exchange.reached_s + 0.004) for exchange in times[pids[2]]]
    step_ms = ranks.step_ns / 1e6
    waits = waits_ms(times, step_ms)
    assert min(waits.values()) > 1
    elsewhere = {pids[0]: times[pids[0]], pids[1]: times[pids[1]], id_on_node(1, pids[2]): later}
    found = {own_id(pid): wait for pid, wait in waits_ms(elsewhere, step_ms).items()}
    assert found == pytest.approx(waits)
    assert waits_ms({**times, pids[2]: later}, step_ms) == {}  # of one node: they do not come out together


def test_one_late_rank_is_named_by_the_clocks_of_the_gpus():
    ranks, _ = run("one late")
    told = findings("one late")
    assert "comm_bound" not in told
    assert (told["straggler_rank"].evidence["rank"], told["straggler_rank"].evidence["phase"]) == (1, "data")
    assert told["straggler_rank"].share_of_step == pytest.approx(ranks.waited(0), abs=0.02)
    reported = report_of(run("one late")[1], [])
    assert [rank.late_ratio > 0.1 for rank in reported.ranks] == [False, True, False]
    assert reported.ranks[1].late_ratio == pytest.approx(ranks.waited(0), abs=0.02)
    rows, axis = compared_ranks(run("one late")[1].over("whole")), Axis(0.0, 1.0, 4)
    assert {*strips(rows, rows, axis, ended=True).values()} == {(None,) * 4}  # CPUs show nothing of it


@pytest.mark.parametrize("kind", ["one computes", "one gathers late"])
def test_a_rank_whose_gpu_alone_computes_is_named_by_its_multiprocessors(kind):
    ranks, found = run(kind)[0], findings(kind)["straggler_rank"]
    assert found.evidence["rank"] == 1
    assert 0.5 * ranks.waited(0) <= found.share_of_step <= ranks.waited(0) + ERROR
    assert "whose GPU computes meanwhile, with " in found.headline
    assert found.best.gain.low <= 1 / (1 - ranks.waited(0)) < found.best.gain.high


def test_collectives_that_the_loop_calls_may_hold_a_gpu_in_any_phase():
    ranks, found = records("one pass")
    pid, shares = ranks.ranks[0].ring.pid, []
    found = [structs.replace(each, sm_ratio=None) if isinstance(each, Gpu) else each for each in found]
    for more in ([], [stacks(found[-1].t, ([FORWARD, GATHER], 9), pid=pid)]):
        shares.append(evidence_of(session_of(*found, *more).over("whole").of(pid)).exchanges[pid].share)
    assert shares[0].low == shares[1].low
    assert shares[0].high < 0.7  # backward is 69 % of the step
    assert shares[1].high > 0.99


def test_a_long_exchange_shows_against_forward():
    found = findings("long exchange")["comm_bound"]
    assert found.evidence["rests_on"] == "forward"
    assert found.share_of_step <= run("long exchange")[0].exchanging(0)


def test_the_traffic_between_gpus_shows_whether_they_exchange_or_wait():
    rates = {"nvlink_rx_bytes_per_s": 12e9, "nvlink_tx_bytes_per_s": 11e9}
    moved = [structs.replace(each, **rates) if isinstance(each, Gpu) else each for each in records("long exchange")[1]]
    finding = next(each for each in diagnose(session_of(*moved)) if each.rule == "comm_bound")
    assert finding.evidence["nvlink_bytes_per_s"] == pytest.approx(12e9)
    assert ("NVLink", "11.2 GiB/s") in evidence_rows(finding.evidence)
    assert "nvlink_bytes_per_s" not in findings("long exchange")["comm_bound"].evidence


def test_a_busy_gpu_says_how_long_it_may_wait_for_the_others():
    ranks, found = run("two losses")[0], findings("two losses")["compute_bound"]
    assert "up to 44 % of that is waiting for the other ranks" in found.headline
    assert ranks.exchanging(0) <= found.evidence["exchange_at_most_share"] == pytest.approx(0.44, abs=0.01)


@pytest.mark.parametrize(
    ("counted", "cause", "says"),
    [
        ({"sm_ratio": 0.02, "dram_ratio": 0.1}, "few_sms", "but with only 2 % of its SMs: its kernels are too small"),
        ({"sm_ratio": 0.3, "dram_ratio": 0.1}, None, "is waiting for the other ranks"),  # as in kernels of NCCL
        ({"sm_ratio": 0.8, "dram_ratio": 0.92}, "memory_traffic", "bound by its memory: 92 %"),
        ({"sm_ratio": None, "power_w": 180.0, "power_limit_w": 700.0}, None, "is waiting for the other ranks"),
    ],
)
def test_a_busy_gpu_of_several_ranks_is_judged_by_what_it_does_while_it_computes(counted, cause, says):
    found = [structs.replace(each, **counted) if isinstance(each, Gpu) else each for each in records("two losses")[1]]
    finding = next(each for each in diagnose(session_of(*found)) if each.rule == "compute_bound")
    assert (finding.cause, says in finding.headline) == (cause, True)


@pytest.mark.parametrize(
    ("run", "finding", "headline", "fix"),
    [
        (
            "rank_locked_clocks",
            "throttled",
            "GPU 1 runs at a low clock, and the driver names no cause (900",
            "reset the",
        ),
        (
            "rank_beside_others",
            "neighbour",
            "process 9 takes 50 % of GPU 1's time: the training may wait",
            "choose another",
        ),
        ("rank_of_another_model", "compute_bound", "is waiting for the other ranks", "run tuimon trace"),
        ("ranks_with_contexts", "compute_bound", "is waiting for the other ranks", "run tuimon trace"),
        ("rank_slow_link", "compute_bound", "is waiting for the other ranks", "run tuimon trace"),
        (
            "rank_few_sms",
            "straggler_rank",
            "rank 1 waits 92 % of the time for ranks 0, 2, whose GPUs",
            "compare rank 0",
        ),
        ("rank_dead_counters", "compute_bound", "is waiting for the other ranks", "run tuimon trace"),
        (
            "rank_computes",
            "straggler_rank",
            "with 80 % of the multiprocessors busy (GPUs that wait: 38 %)",
            "compare rank 1",
        ),
        (
            "rank_hot",
            "straggler_rank",
            "at 40 % of the highest clock (GPUs that wait: 100 %)",
            "find what holds the clocks",
        ),
        ("rank_at_high_power", "straggler_rank", "may wait 59 % of the time for rank 1, whose GPU", "compare rank 1"),
        ("rank_at_high_power_and_low_clocks", "throttled", "the driver names no cause (900 of 1410 MHz)", "reset the"),
        (
            "ranks_at_little_power",
            "compute_bound",
            "draws 25 % of its power limit at full clock, a weak sign",
            "run tuimon",
        ),
        ("links_idle", "comm_bound", "mostly for whichever of the 3 ranks is late", "give all ranks equal work"),
        ("links_busy", "comm_bound", "for gradients of the other 2 ranks", "accumulate gradients"),
        (
            "ranks_of_other_streams",
            "compute_bound/other_streams",
            "other streams, such as NCCL's, or",
            "run tuimon trace",
        ),
    ],
)
def test_what_one_fact_changes_for_ranks(run, finding, headline, fix):
    first = fold(altered(run))[1][0]
    assert first.name == finding
    assert headline in first.headline
    assert first.action.startswith(fix)


def test_a_rank_that_is_late_by_power_alone_promises_no_gain():
    late = next(each for each in fold(altered("rank_at_high_power"))[1] if each.rule == "straggler_rank")
    assert (late.severity, late.best.gain) == ("info", None)


def test_work_that_ranks_share_evenly_is_not_gone():
    """Rank 1 waits for two ranks with all the work: even work takes two thirds of the time, not 8 % of it."""
    late = next(each for each in fold(altered("rank_few_sms"))[1] if each.rule == "straggler_rank")
    assert late.best.gain.low <= 1.5 < late.best.gain.high


@pytest.mark.parametrize("kind", LOOPS)
def test_nothing_of_several_ranks_is_as_it_should_be(kind):
    assert not any("as it should be" in finding.headline for finding in diagnose(run(kind)[1]))
