"""What a training does while it makes no steps, on literal sessions."""

import pytest
from msgspec.structs import replace

from tests.session.records import extend, frames, header, loop, one_process, process, session_of, stacks, steps, threads
from tuimon.records import NO_TORCH_YET, Exit
from tuimon.session.state import RunState, run_state, stands_still, unseen_trainings
from tuimon.views.run_text import state_text, unseen_text

LOADING = frames(("/home/me/prep.py", 40, "load", "for line in text:", True))
STEP = {"data": 10, "forward": 50, "backward": 40}


def test_before_the_first_step_it_starts_whatever_it_does():
    session = one_process(LOADING, stacks(2, ([0], 30)), steps(3, {}, count=0, open_phase="data"))
    state = run_state(session)
    assert state[:4] == ("starting", 3.0, "computing", 2.0)
    assert (state.place.function, state.place.line) == ("load", 40)


def test_a_process_that_tuimon_attached_to_may_have_begun_long_ago():
    session = session_of(replace(header(), mode="attach"), process(markers=False), LOADING, stacks(14, ([0], 30)))
    assert state_text(run_state(session)) == "no step seen for 14s: computing at load() prep.py:40 for 1.0s"


def test_a_process_that_only_waits_for_those_it_has_started_does_not_start():
    joining = frames(
        ("/home/me/serve.py", 39, "<module>", "mp.spawn(run, nprocs=2)", True),
        ("/v/site-packages/torch/multiprocessing/spawn.py", 140, "join"),
        ("/lib/python3.11/multiprocessing/connection.py", 930, "wait"),
    )
    session = one_process(joining, process(101, "worker", ppid=100, markers=False))
    extend(session, [stacks(t, ([0, 1, 2], 30)) for t in range(1, 70)])
    assert state_text(run_state(session)) == "waiting for its processes for 1m09s"
    session.add(threads(70, (101, "python", 0.9, "running"), pid=101, cpu_ratio=0.9))
    assert state_text(run_state(session)) == "waiting for its processes for 1m10s: they compute on 0.9 cores"
    (unseen,) = unseen_trainings(session)
    assert unseen.pid == 101 and "tuimon.step()" in unseen.reason
    session.add(Exit(t=71, pid=100, exit_code=0))
    assert "mostly waiting for its processes at serve.py:39" in state_text(run_state(session))


def test_a_process_that_a_signal_has_stopped_does_not_set_up():
    window = stacks(2, ([0], 30))
    session = one_process(LOADING, window, threads(3, (100, "main", 0.0, "stopped")))
    state = run_state(session)
    assert state[:4] == ("starting", 3.0, "stopped by a signal (kill -CONT 100 lets it go on)", None)
    assert state.place.line == 40
    session.add(threads(4, (100, "main", 0.5, "running"), (101, "other", 0.0, "stopped")))
    assert run_state(session).doing == "computing"


def test_a_loop_that_was_left_has_ended():
    left = loop(range(5, 12), {}, count=0, first_index=40, backwards=0, outside_s=1.0)
    session = one_process(loop(4, STEP), left)
    assert run_state(session) == RunState("between_steps", 7.0, "its training loop has ended", 7.0)
    assert stands_still(session)
    session.add(steps(12, STEP, first_index=40, outside_s=0.5, open_phase="data", open_for_s=0.1))
    assert run_state(session) == RunState("training")


def test_a_step_that_is_open_shows_its_inside():
    opened = loop(range(4, 24), {}, count=0, first_index=0, backwards=1, open_phase="backward", open_for_s=0.5)
    session = one_process(steps(3, {}, count=0, backwards=0), opened)
    assert run_state(session) == RunState("step_open", 20.0, "in backward", 0.5, None, 20)


FETCH_AND_BACKWARD = frames(
    ("/home/me/train.py", 14, "main", "for batch in loader:", True),
    ("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 700, "__next__"),
    ("/home/me/data.py", 8, "read", "return imread(path)", True),
    ("/home/me/train.py", 16, "main", "loss.backward()", True),
    ("/v/lib/python3.11/site-packages/torch/autograd/__init__.py", 9, "backward"),
    ("/home/me/train.py", 15, "main", "out = model(batch)", True),
)


def place_in(phase, open_for_s):
    """The line shown of a step that is open in this phase, after a window of fetches, backwards and a line between."""
    seen = stacks(20, ([0, 1, 2], 12), ([3, 4], 30), ([5], 3))
    opened = steps(20, {}, count=0, backwards=14, open_phase=phase, open_for_s=open_for_s)
    session = one_process(FETCH_AND_BACKWARD, steps(3, {}, count=0, backwards=0), seen, opened)
    place = run_state(session).place
    return place.line if place is not None else None


def test_the_line_of_an_open_step_is_one_of_the_phase_that_it_is_in():
    assert [place_in(phase, 0.2) for phase in ("data", "forward", "backward", "optimizer")] == [8, 15, 16, None]
    assert place_in(None, 0.2) == 16


COMPILER = frames(
    ("/home/me/train.py", 14, "main", "loss = step(batch)", True),
    ("/v/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py", 2102, "_compile"),
    ("/v/lib/python3.11/site-packages/torch/_inductor/cpp_builder.py", 696, "_run_compile_cmd"),
    ("/v/lib/python3.11/subprocess.py", 1196, "communicate"),
    ("/v/lib/python3.11/site-packages/triton/backends/nvidia/compiler.py", 400, "make_cubin"),
    first=20,
)


@pytest.mark.parametrize("stack", [[20, 21], [20, 21, 22, 23], [20, 24, 23]])
def test_a_step_in_which_the_model_is_compiled_says_that(stack):
    """A step that torch has traced a backward pass in, and samples as well."""
    session = one_process(COMPILER, FETCH_AND_BACKWARD, steps(3, {}, count=0, backwards=0))
    session.add(stacks(3, ([5], 20)))
    for t in range(4, 24):
        session.add(steps(t, {}, count=0, backwards=int(t == 4), open_phase="other", open_for_s=t - 4.0))
        session.add(stacks(t, (stack, 10)))
    state = run_state(session)
    assert state[:4] == ("step_open", 20.0, "compiling", 20.0) and state.place.line == 14
    session.add(stacks(24, ([5], 10)))
    assert run_state(session).doing == "in other"


def test_a_part_of_a_step_that_is_not_sampled_yet_is_not_known_to_compile():
    session = one_process(COMPILER, steps(3, {}, count=0, backwards=1), stacks(4, ([20, 21], 20)))
    session.add(steps(9, {}, count=0, backwards=0, open_phase="other", open_for_s=4.0))
    assert run_state(session).doing == "in other"


def test_a_loop_at_work_trains_and_a_pause_of_it_is_said():
    session = one_process(loop(4, STEP))
    assert run_state(session) == RunState("training")
    pause = {"count": 0, "first_index": 40, "backwards": 0, "open_phase": "other"}
    session.add(steps(6, {}, **pause, open_for_s=2.0))
    assert run_state(session).name == "training"  # for so short a time that it is no news
    session.add(steps(10, {}, **pause, open_for_s=6.0))
    assert run_state(session) == RunState("between_steps", 6.0, "in other", 6.0)


def standing(open_s, doing_s, longest_ms=100):
    longest = steps(15, {"forward": longest_ms}, first_index=40, count=1)
    still = steps(15 + open_s, {}, count=0, first_index=41, open_phase="forward", open_for_s=doing_s)
    return stands_still(one_process(loop(4, STEP), longest, still))


def test_a_loop_stands_still_once_no_boundary_has_come_for_long():
    assert [standing(4, 4.0), standing(5, 5.0), standing(40, 5.0)] == [False, True, True]
    assert not standing(40, 0.3)  # an evaluation, batch by batch
    assert [standing(8, 8.0, 6000), standing(9, 9.1, 6000)] == [False, True]  # it has paused this long
    assert [standing(9, 9.0, 60_000), standing(10, 10.0, 60_000)] == [False, True]


def test_steps_that_have_always_been_long_are_no_pause():
    still = steps(30, {}, count=0, first_index=1, backwards=0, open_phase="forward", open_for_s=10.0)
    assert run_state(one_process(steps(20, {"forward": 19_000}, count=1), still)).name == "training"


def test_a_pause_that_samples_alone_show_is_said_and_not_judged():
    lines = frames(
        ("train.py", 12, "main", "loss.backward()", True),
        ("/lib/site-packages/torch/autograd/__init__.py", 9, "backward"),
        ("train.py", 20, "embed", "points = umap(codes)", True),
    )
    session = one_process(lines, stacks(1, ([0, 1], 50)), markers=False)
    seen = []
    for t in range(2, 9):
        session.add(stacks(t, ([2], 50)))
        seen.append((run_state(session).name, stands_still(session)))
    assert seen[:2] == [("training", False)] * 2
    assert seen[2:4] == [("between_steps", False)] * 2
    assert seen[4:] == [("between_steps", True)] * 3
    state = run_state(session)
    assert (state.for_s, state.place.function, state.place.line) == (7.0, "embed", 20)
    session.add(stacks(9, ([0, 1], 50)))
    assert run_state(session) == RunState("training")


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([], True),
        ([process(101, markers=True)], False),
        ([process(101, markers=False, markers_reason="started with -S")], False),
        ([process(101, "other", markers=False, command=["bash"])], True),
    ],
)
def test_a_program_that_never_imported_torch(others, told):
    waits = process(markers=False, markers_reason=NO_TORCH_YET)
    session = session_of(header(), waits, *others, Exit(t=9.0, pid=100, exit_code=0))
    assert ("never imported torch" in (run_state(session).doing or "")) is told
    assert "torch" not in (run_state(session_of(header(), waits)).doing or "")


def test_a_program_that_is_not_python():
    binary = process(command=["./train"], python=None, markers=False)
    session = session_of(header(), binary, threads(4, (100, "train", 0.9, "running")))
    assert run_state(session).doing is None
    session.add(threads(9, (100, "train", 0.9, "running")))
    assert run_state(session).doing == "no Python process so far: only CPU and GPU are measured"
    session.add(Exit(t=9.0, pid=100, exit_code=0))
    assert run_state(session).doing == "no Python process was seen; only CPU and GPU were measured"


@pytest.mark.parametrize("seen", [{"python": "3.11.7"}, {"python": None, "markers_reason": "started with -I or -E"}])
def test_a_python_behind_a_wrapper_is_one(seen):
    wrapper = process(command=["bash", "train.sh"], python=None, markers=False)
    session = session_of(header(), wrapper, process(101, "other", markers=False, **seen), threads(9))
    assert run_state(session).doing is None
    session.add(Exit(t=9.0, pid=100, exit_code=1))
    assert run_state(session).doing is None


def run(*more, t=70.0):
    return session_of(header(), *more, threads(t, (100, "python", 1.0, "running"), cpu_ratio=3.9))


def test_a_busy_process_without_a_step_is_named_with_what_would_make_it_visible():
    (found,) = unseen_trainings(run(process()))
    assert (found.pid, found.cores, found.on_gpu) == (100, 3.9, False)
    assert unseen_text(found) == (
        "process 100 (python train.py) uses 3.9 cores, but no steps were seen: torch ran no backward or optimizer step"
        " from Python; tuimon.step() at the end of each step makes such a loop visible"
    )


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"markers": False, "python": "3.11", "markers_reason": "started with -I or -E"}, "started with -I or -E;"),
        ({"markers": False, "role": "other", "command": ["./trainer"]}, "it is not a Python program"),
    ],
)
def test_why_it_is_not_seen(facts, says):
    (found,) = unseen_trainings(run(process(**facts)))
    assert found.reason.startswith(says)


def test_nothing_is_named_in_the_first_minute_beside_a_training_that_is_seen_or_of_a_worker():
    assert unseen_trainings(run(process(), t=50.0)) == []
    assert unseen_trainings(run(process(), steps(60, {"forward": 50, "backward": 40}))) == []
    assert unseen_trainings(run(process(role="worker"))) == []
    compiling = frames(("/v/lib/python3.11/site-packages/torch/_inductor/codecache.py", 9, "compile"))
    assert unseen_trainings(run(process(), compiling, stacks(69, ([0], 20)))) == []
    idle = one_process(threads(70, (100, "python", 0.1, "waiting"), cpu_ratio=0.1))
    assert unseen_trainings(idle) == []
