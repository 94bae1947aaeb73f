"""The wall time of a run, divided; from literal records."""

from unittest.mock import Mock

import pytest
from msgspec import structs

from tests.session.records import frames, header, one_process, process, session_of, stacks, steps
from tuimon.records import Exit, Frame, LoopStack, PhaseTime, StandingProcess, Standstill
from tuimon.session.state import Goodput, goodput
from tuimon.views.report.page import as_html, html_page
from tuimon.views.report_types import GoodputPart
from tuimon.views.run_text import goodput_text

PHASES = {"data": 20, "forward": 30, "backward": 40, "optimizer": 10}
LINES = frames(
    ("train.py", 1, "<module>", "import torch", True),
    ("<frozen importlib._bootstrap>", 1, "_find_and_load"),
    ("train.py", 8, "load", "rows = parse(path)", True),
    ("train.py", 12, "main", "loss.backward()", True),
    ("/v/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("train.py", 15, "main", "torch.save(state, path)", True),
    ("/v/site-packages/torch/serialization.py", 9, "save"),
    ("/v/site-packages/torch/_dynamo/convert_frame.py", 9, "_compile"),
    ("train.py", 10, "main", "for x, y in loader:", True),
    ("/v/tuimon/agent/hooks.py", 9, "tuimon_fetch"),
    ("/v/site-packages/torch/nn/modules/conv.py", 560, "forward"),  # 10
    ("offload.py", 38, "pack", "torch.save(tensor, spill.name)", True),
)
IMPORT, LOAD, TRAIN, SAVE, COMPILE, FETCH = [0, 1], [2], [3, 4], [5, 6], [3, 7], [8, 9]


def made(t, samples, **more):
    """A window of ten steps of 0.1 s each, and of samples."""
    begun = {"first_step_s": t - 1.0, "first_backward_s": t - 0.9} if t == 11 else {}
    return [steps(t, PHASES, first_index=10 * (t - 11), **begun, **more), stacks(t, *samples)]


def trained(*seconds):
    """Windows of steps in which nothing else was sampled."""
    return [made(t, [(TRAIN, 20)]) for t in seconds]


def sampled(stack, begin, end, pid=100):
    """Samples of so many seconds, from one on."""
    return [stacks(t, (stack, 20), pid=pid) for t in range(begin, end)]


def stays(stack, begin, end, **more):
    """As long without a step, with the training thread at one place."""
    return [(steps(t, {}, count=0, **more), stacks(t, (stack, 20))) for t in range(begin, end)]


def set_up(imports=4, until=10):
    """What is sampled before the loop: imports for so long, and the run's own."""
    return sampled(IMPORT, 1, imports + 1), sampled(LOAD, imports + 1, until + 1)


def ends(t, code=0, signal=None):
    return Exit(t=t, pid=100, exit_code=code, signal=signal)


def parts(*records):
    """A run whose loop begins at 10 s, after an import of 4 s and 6 s in its own set-up."""
    found = goodput(one_process(LINES, set_up(), *records))
    assert sum(found.parts.values()) == pytest.approx(found.total_s)
    return found


@pytest.mark.trust
def test_a_stop_is_no_training_and_leaves_the_rate_of_the_steps():
    """Also where a step is known to have ended only later, as without a DataLoader."""
    stop = [steps(t, {}, count=0, first_index=50, outside_s=1.0, open_for_s=t - 15.0) for t in range(16, 36)]
    after = [steps(t, PHASES, first_index=10 * (t - 31), last_step_s=t - 1.2) for t in range(36, 41)]
    before = trained(*range(11, 16))
    found = parts(before, stop, after)
    assert found.parts["outside"] == pytest.approx(20.0)
    assert found.parts["training"] == pytest.approx(10.0)
    session = one_process(before, stop, after)
    assert session.over("whole").of(100).steps.per_second == pytest.approx(10.0, rel=0.1)


def text_of_parts(found: Goodput) -> str:
    shares = [GoodputPart(part, seconds, seconds / found.total_s) for part, seconds in found.parts.items()]
    return goodput_text(found.total_s, shares)


OUTSIDE = [
    (
        "network",
        "calls over the network",
        [
            ("train.py", 5, "fetch", "session.get(url)", True),
            ("/v/site-packages/requests/sessions.py", 7, "get"),
            ("/usr/lib/python3.11/socket.py", 706, "readinto"),
        ],
    ),
    (
        "program",
        "waiting for other programs",
        [
            ("train.py", 5, "install", "subprocess.check_call(command)", True),
            ("/usr/lib/python3.11/subprocess.py", 1264, "wait"),
        ],
    ),
    ("prompt", "at a prompt", [("train.py", 5, "ask", "input('start? ')", True)]),
]


@pytest.mark.parametrize(("part", "said", "lines"), OUTSIDE)
def test_waits_outside_after_the_last_step_have_names(part, said, lines):
    waits = stays(range(20, 20 + len(lines)), 12, 16)
    found = parts(frames(*lines, first=20), trained(11), waits, ends(16.0))
    assert (found.parts[part], found.parts["after"]) == pytest.approx((4.0, 1.0))
    assert said in text_of_parts(found)


LOOPS = [
    Frame("train.py", 30, "fit", "loss.backward()", True, loop=True),
    Frame("train.py", 31, "fit", "writer.add_scalar(loss)", True, loop=True),
    Frame("train.py", 33, "fit", "writer.close()", True),
    Frame("train.py", 9, "add_scalar", "self.queue.put(value)", True),
    Frame("/usr/lib/python3.11/queue.py", 140, "put"),
    Frame("/usr/lib/python3.11/threading.py", 320, "wait"),
    Frame("train.py", 7, "add_scalar", "time.sleep(60)", True),
]


@pytest.mark.parametrize(
    ("stack", "part"),
    [([31, 33, 34, 35], "hang"), ([32, 33, 34, 35], "after"), ([31, 36], "after"), ([31, 33], "after")],
    ids=["waits in the loop", "waits after the loop", "sleeps", "works"],
)
def test_a_thread_that_waits_in_its_loop_until_the_run_ends_or_leaves_it_stands_still(stack, part):
    trains = made(11, [([30, 4], 20)])
    trains[1] = structs.replace(trains[1], loop=[LoopStack("backward", [30, 4])])
    waits = [stays(stack, t, t + 1, open_for_s=t - 11.0) for t in range(12, 19)]
    found = parts(frames(*LOOPS, first=30), trains, waits, ends(18.0, 130, "SIGINT"))
    assert found.parts[part] == pytest.approx(7.0)
    leaves = stays([32, 33], 19, 20, open_for_s=8.0)
    found = parts(frames(*LOOPS, first=30), trains, waits, leaves, ends(19.0))
    assert found.parts[part] == pytest.approx(7.0 if part == "hang" else 8.0)


def test_the_time_of_a_program_in_python_before_the_loop_is_a_part():
    """While it runs it is sampled in place of the training, as it might become one."""
    pip = process(101, ppid=100, torch=None, markers=False)
    before = set_up(imports=3, until=3), sampled(LOAD, 4, 9, pid=101), sampled(LOAD, 9, 11)
    found = goodput(one_process(pip, LINES, before, trained(11), sampled(LOAD, 11, 12, pid=101)))
    assert found.parts == pytest.approx({"import": 3.0, "program": 5.0, "set-up": 2.0, "training": 1.0})


@pytest.mark.parametrize("first", [100, 101])
def test_a_rank_that_starts_another_one_does_not_wait_for_it(first):
    """Rank 0 imports until 6 s and is set up until 10; it starts rank 1 at 3 s, whose steps may be read first."""
    ranks = process(rank=0), process(101, ppid=100, rank=1, start_unix_s=1.7e9 + 3)
    own, other = set_up(imports=6), sampled(IMPORT, 4, 11, pid=101)
    records = sorted([*own[0], *own[1], *other], key=lambda record: (record.t, record.pid))
    steps_of = {pid: made(11, ((TRAIN, 20),), pid=pid) for pid in (100, 101)}
    begun = [steps_of[first][0], steps_of[201 - first][0], stacks(11.0, (TRAIN, 20))]
    found = goodput(session_of(header(), *ranks, LINES, *records, *begun))
    assert found.parts == pytest.approx({"import": 6.0, "set-up": 4.0, "training": 1.0})


def test_a_training_that_another_one_starts_has_its_own_time_before_its_loop():
    """The first trains until 60 s; the second imports for 3 s of the 9 s after that."""
    first, second = process(), process(101, ppid=100, start_unix_s=1.7e9 + 60)
    imports = sampled(IMPORT, 61, 64, pid=101), sampled(LOAD, 64, 67, pid=101)
    begun = steps(67.0, PHASES, first_step_s=66.0, first_backward_s=66.1, pid=101)
    session = session_of(header(), first, second, LINES, trained(*range(11, 61)), imports, begun)
    session.trainer = Mock(return_value=101)
    assert goodput(session).parts["import"] == pytest.approx(3.0)


def test_a_window_that_ends_after_the_loop_has_begun_is_mostly_of_the_time_before():
    """It is recorded after the first steps: the loop begins at 10 s, and it at 8 s."""
    late = stacks(10.5, (SAVE, 20))
    first = steps(10.8, PHASES, count=8, first_step_s=10.0, first_backward_s=10.1)
    found = goodput(one_process(LINES, set_up(until=8), first, late, trained(12)))
    assert (found.parts["set-up"], found.parts["checkpoint"]) == pytest.approx((4.0, 2.5))


def test_the_time_before_the_first_samples_is_divided_as_they_are():
    found = goodput(one_process(LINES, stacks(3.0, (IMPORT, 20)), stacks(4.0, (LOAD, 20))))
    assert found.parts == pytest.approx({"import": 3.0, "set-up": 1.0})


def test_files_written_within_the_model_are_no_checkpoint():
    packs = [made(t, [(TRAIN, 15), ([10, 11, 6], 5)]) for t in range(11, 20)]
    assert parts(packs, trained(20)).parts == pytest.approx({"import": 4.0, "set-up": 6.0, "training": 10.0})


def test_checkpoints_and_compilation_between_steps_are_no_training():
    saves = [made(t, [(TRAIN, 15), (SAVE, 5)]) for t in range(12, 20)]
    found = parts(made(11, [(COMPILE, 10), (TRAIN, 10)]), saves, trained(20))
    named = {"import": 4.0, "set-up": 6.0, "compile": 0.5, "checkpoint": 2.0, "training": 7.5}
    assert found.parts == pytest.approx(named)
    assert text_of_parts(found) == ("38 % of 20s in steps; set-up 30 %, import 20 %, checkpoint 10 %, compile 2 %")


def awaits(seconds):
    """A fetch that has not brought a batch for so long."""
    return [stays(FETCH, t, t + 1, open_for_s=t - 11.0) for t in range(12, 12 + seconds)]


def stood(has_left=False):
    """A standstill from 12 s on, until its stacks are taken at 60 s."""
    processes = [StandingProcess(100, "trainer", has_left=has_left)]
    still = [steps(t, {}, count=0, first_index=20, backwards=0, updates=0) for t in range(13, 61)]
    return trained(11, 12), still, Standstill(t=60.0, pid=100, quiet_s=48.0, processes=processes)


HALTED = [
    frames(("train.py", 13, "main", "breakpoint()", True), ("/usr/lib/python3.11/cmd.py", 126, "cmdloop"), first=20),
    *made(12, ((TRAIN, 5), ([20, 21], 15))),
]
EVALUATED = structs.replace(
    steps(12.0, {}, count=0, first_index=10, eval_count=4), phases=[PhaseTime("eval", 600_000_000)]
)


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([trained(11), HALTED, trained(13)], {"prompt": 0.75}),
        # evaluation belongs to the time before or after the last step
        ([trained(11), EVALUATED, trained(13)], {"evaluation": 0.6}),
        ([trained(11), EVALUATED, ends(13.0)], {"evaluation": 0.6, "after": 1.4, "training": 1.0}),
        ([trained(11, 12), stays(SAVE, 13, 15), ends(16.0)], {"checkpoint": 2.0, "after": 2.0}),
        # a batch that has not come when the run ends was waited for at a standstill
        ([trained(11), awaits(7), ends(18.0, 130, "SIGINT")], {"hang": 7.0}),
        ([trained(11), awaits(3), ends(14.0, 130, "SIGINT")], {"after": 3.0}),
        ([trained(11), awaits(7)], {"training": 8.0}),
        # a hang is one also if it ends, or the run does; not of a process that has left its loop
        ([stood(), trained(61)], {"hang": 49.0}),
        ([stood(), ends(61.0, None, "SIGKILL")], {"hang": 49.0}),
        ([stood(has_left=True), ends(61.0, None, "SIGKILL")], {"after": 49.0}),
    ],
)
def test_time_that_is_no_training_has_names(records, named):
    found = parts(*records).parts
    assert {part: found[part] for part in named} == pytest.approx(named)


def test_a_rank_that_was_restarted_has_lost_the_time_before():
    earlier, ended = process(pid=99, rank=0), process(pid=99, rank=0, ended=True, t=8.0)
    before = steps(6.0, PHASES, pid=99)
    later = process(rank=0, t=10.0, start_unix_s=1.7e9 + 9.5)
    found = goodput(session_of(header(), earlier, before, ended, later, LINES, trained(11)))
    assert found.parts == pytest.approx({"restart": 9.5, "set-up": 0.5, "training": 1.0})


def test_a_process_that_replaces_itself_has_lost_the_time_until_it_trains_again():
    again = steps(
        21, PHASES, first_index=10, first_step_s=20.0, first_backward_s=20.1, gc_ns=3_000_000_000, gc_count=40
    )
    session = one_process(LINES, *set_up(), trained(11), again)
    found = goodput(session)
    assert found.parts == pytest.approx({"restart": 9.0, "import": 4.0, "set-up": 6.0, "training": 2.0})
    sums = session.step_stats[100].since_start().sums
    assert (sums.gc_ns, sums.gc_span_s) == (0, 0)


def test_the_page_draws_it():
    page = as_html([html_page(one_process(LINES, trained(11, 12), ends(12.5)), [])])
    assert '<rect class="forward" x="0.00%" width="16.00%" height="22"><title>training 16 %</title>' in page
