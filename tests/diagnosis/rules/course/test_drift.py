"""Steps that take longer and longer, since one moment, or than in the best hour; and courses that only look so."""

import math
import random

import pytest

from tests.diagnosis.cpu import AUGMENT, BACKWARD, NO_GPU
from tests.session.records import by_rule, extend, frames, one_process, process, stacks, steps, thread, threads
from tuimon.diagnosis.evidence.course import WARMUP_WINDOWS, jump_in
from tuimon.diagnosis.judging import diagnose
from tuimon.diagnosis.rules import course as rule

SEEDS = 100
WINDOWS = 300


def is_drift(windows):
    """Of the mean steps of windows, as the rule judges them."""
    return rule.is_drift(windows[WARMUP_WINDOWS:])


def noise(rng, sigma):
    return math.exp(rng.gauss(0, sigma))


def heavy_noise(rng):
    return [100 * noise(rng, 0.5) for _ in range(WINDOWS)]


def noise_with_memory(rng):
    level, course = 0.0, []
    for _ in range(WINDOWS):
        level = 0.7 * level + rng.gauss(0, 0.14)
        course.append(100 * math.exp(level))
    return course


def slow_or_fast_start(rng):
    begun, ratio = rng.randint(1, 40), rng.choice((3.0, 0.5))
    return [100 * noise(rng, 0.1) * (ratio if t < begun else 1) for t in range(WINDOWS)]


def sawtooth_per_epoch(rng):
    epoch, growth = rng.randint(4, 16), rng.uniform(0.2, 1.5)
    return [100 * noise(rng, 0.05) * (1 + growth * (t % epoch) / epoch) for t in range(WINDOWS)]


def one_slow_step(rng):
    slow = rng.randrange(WINDOWS)
    return [100 * noise(rng, 0.1) * (100 if t == slow else 1) for t in range(WINDOWS)]


def one_jump(rng):
    jump = rng.randint(5, 250)
    return [100 * noise(rng, 0.1) * (2 if t > jump else 1) for t in range(WINDOWS)]


def regular_side_work(rng):
    every = rng.randint(3, 40)
    return [100 * noise(rng, 0.1) * (5 if t % every == 0 else 1) for t in range(WINDOWS)]


COURSES = [heavy_noise, noise_with_memory, sawtooth_per_epoch, one_slow_step, regular_side_work]


@pytest.mark.parametrize("course", [*COURSES, slow_or_fast_start, one_jump])
def test_false_alarms_are_rare_however_often_it_is_judged(course):
    alarms = 0
    for seed in range(SEEDS):
        windows = course(random.Random(seed))
        alarms += any(is_drift(windows[:t]) for t in range(10, WINDOWS, 5))
    assert alarms <= SEEDS / 100


def test_a_long_sawtooth_is_none_once_two_epochs_have_ended():
    for epoch in (40, 60, 100):
        windows = [100 * (1 + t % epoch / epoch) for t in range(WINDOWS * 2)]
        assert not any(is_drift(windows[:t]) for t in range(2 * epoch, len(windows)))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("ratio", "seconds", "sigma"), [(10, 25, 0.05), (2, 600, 0.2)])
def test_growth_is_seen_however_slow_it_is(ratio, seconds, sigma, seed):
    rng = random.Random(seed)
    assert is_drift([100 * (1 + (ratio - 1) * t / seconds) * noise(rng, sigma) for t in range(seconds)])


# ---- whole sessions

LOOP = frames(
    ("train.py", 12, "log", "history.append(norms(history))", True),
    ("train.py", 30, "save", "torch.save(model, path)", True),
    ("train.py", 54, "main", "log(loss)", True),
    ("train.py", 55, "main", "save()", True),
    first=12,
)


def course_of(*windows, samples=(), lines=LOOP, delays=()):
    """What is said of steps with these phases, window by window; ``delays``: shares in which they wait for a core."""
    made = [steps(t + 0.1, phases, first_index=10 * (t - 1)) for t, phases in enumerate(windows, 1)]
    made += [threads(t, (100, "python", 1.0 - delay, "running", delay)) for t, delay in enumerate(delays, 1)]
    made += [stacks(t + 0.2, *counted) for t, counted in enumerate(samples, 1)]
    return by_rule(one_process(AUGMENT, lines, sorted(made, key=lambda record: record.t))).get("step_time_drift")


def drift_of(lengths_ms, delays=None, samples=()):
    """Of steps whose side work takes so long."""
    windows = [{"data": 5, "forward": 40, "backward": 45, "other": ms} for ms in lengths_ms]
    return course_of(*windows, samples=samples, delays=delays or [0.0] * len(windows))


def test_the_line_that_grows_is_named_with_what_is_to_gain_though_another_takes_more():
    lengths = [100 + 20 * t for t in range(30)]
    samples = [((BACKWARD, 9), ([14, 12], round((ms - 90) / 10)), ([15, 13], 20)) for ms in lengths]
    drift = drift_of(lengths, samples=samples)
    assert (drift.where[0].function, drift.where[0].line) == ("log", 12)
    assert "x slower than at first" in drift.headline and "in other" in drift.headline
    assert drift.evidence["before_ms"] == pytest.approx(290, rel=0.01)
    assert drift.estimated_speedup == pytest.approx(drift.evidence["now_ms"] / drift.evidence["before_ms"])


HOOKS = frames(
    ("/lib/site-packages/torch/nn/modules/module.py", 1850, "inner", "result = hook(self, args, result)"),
    ("probes.py", 9, "keep", "self.features[name] = output.pow(2)", True),
    ("probes.py", 12, "forward", "return output.pow(2)", True),
    first=12,
)


@pytest.mark.parametrize(("stack", "action"), [((8, 12, 13), "register hooks once"), ((8, 14), "lists of losses")])
def test_what_is_known_of_the_line_that_grows_is_told(stack, action):
    windows = [{"forward": 40 + 8 * t, "backward": 45} for t in range(30)]
    samples = [((BACKWARD, 9), (stack, 8 + round(1.6 * t))) for t in range(30)]
    drift = course_of(*windows, samples=samples, lines=HOOKS)
    assert drift.where[0].file == "probes.py" and action in drift.action


def test_work_that_grows_is_seen_through_a_neighbour_that_comes_and_goes():
    delays = [0.0 if t % 3 else 0.8 for t in range(30)]
    lengths = [(100 + 10 * t) / (1 - delay) - 90 for t, delay in enumerate(delays)]
    assert not is_drift([ms + 90 for ms in lengths])
    assert drift_of(lengths, delays) is not None


def loading_drift(items_ms, delays):
    """Of a loop that waits for its two workers, which wait for a core in these shares of the time."""
    session = one_process([process(pid, "worker", ppid=100) for pid in (101, 102)])
    for t, (ms, delay) in enumerate(zip(items_ms, delays, strict=True), 1):
        extend(session, thread(t, 0.1, 0.0), [thread(t, 1.0 - delay, delay, pid=pid) for pid in (101, 102)])
        session.add(steps(t + 0.1, {"data": ms / (1 - delay) - 20, "backward": 20}, first_index=10 * (t - 1)))
    return by_rule(session).get("step_time_drift")


def test_workers_that_wait_for_a_core_ever_longer_are_a_neighbours():
    delays = [t / 60 for t in range(30)]
    assert loading_drift([100] * 30, delays) is None
    assert loading_drift([100 + 5 * t for t in range(30)], delays).evidence["grown_phase"] == "data"


# ---- more work


def test_steps_whose_forward_and_backward_grow_alike_do_more_work():
    longer_sequences = [{"data": 1, "forward": 10 + 3 * t, "backward": 20 + 7 * t, "optimizer": 2} for t in range(30)]
    longer_episodes = [{"between": 10 + 8 * t, "backward": 5 + 3 * t, "optimizer": 2} for t in range(30)]
    for course in (longer_sequences, longer_episodes):
        found = course_of(*course)
        assert (found.severity, found.cause, found.estimated_speedup) == ("info", "more_work", None)
        assert "forward and backward alike" in found.headline


def test_more_work_is_told_by_what_steps_compute_beside_a_neighbour_that_goes():
    delays = [0.7 if t < 15 else 0.0 for t in range(30)]
    course = [
        {"between": (10 + 8 * t) / (1 - delay), "backward": (5 + 3 * t) / (1 - delay), "optimizer": 0.8 + t / 60}
        for t, delay in enumerate(delays)
    ]
    found = course_of(*course, delays=delays)
    assert found.cause == "more_work"
    assert found.evidence["now_ms"] / found.evidence["before_ms"] > 3


@pytest.mark.parametrize(
    ("course", "grown"),
    [
        (lambda t: {"forward": 10, "backward": 20 + 7 * t, "optimizer": 2}, "backward"),  # graphs that are kept
        (lambda t: {"forward": 10 + t, "backward": 20 + 2 * t, "optimizer": 5 + t / 2}, "backward"),  # a slower machine
        (lambda t: {"forward": 10 + t / 10, "backward": 20 + t / 5, "other": 1 + 10 * t}, "other"),  # a history
    ],
)
def test_what_grows_alone_or_far_more_than_the_work_is_drift(course, grown):
    found = course_of(*map(course, range(30)))
    assert (found.cause, found.evidence["grown_phase"]) == (None, grown)


ROLLOUT = frames(
    ("train.py", 20, "collect", "state, reward, done, _, info = env.step(action)", True),
    ("env.py", 5, "step", "state = simulate(state)", True),
    ("train.py", 21, "collect", "action = policy(state)", True),
    ("train.py", 8, "main", "batch = collect()", True),
    ("train.py", 18, "collect", "action = policy(state)", True),
    ("train.py", 19, "collect", "action = Categorical(logits).sample()", True),
    first=12,
)


def rollouts(environment_ms, policy_ms, *, acting=(15, 14, 9), until=30):
    """A loop whose rollouts take so long, in each window, before an update that takes 20 ms.

    ``acting``: a stack of its policy; ``until``: the windows in which samples show backward.
    """
    windows = [{"between": e + p, "backward": 20} for e, p in zip(environment_ms, policy_ms, strict=True)]
    samples = [
        (*[(BACKWARD, 20)][: n < until], ([15, 12, 13], round(e)), (acting, round(p)), ([15, 16, 9], 1))
        for n, (e, p) in enumerate(zip(environment_ms, policy_ms, strict=True))
    ]
    return course_of(*windows, samples=samples, lines=ROLLOUT)


def test_rollouts_of_more_steps_are_more_work_though_the_update_is_as_long_as_ever():
    growing = [20 + 8 * t for t in range(30)], [30 + 9 * t for t in range(30)]
    found = rollouts(*growing)
    assert found.cause == "more_work"
    assert "environment and policy alike" in found.headline
    assert rollouts(*growing, until=10).cause == "more_work"  # though late samples show no update
    # what is made of the policy's answer grows with it
    assert rollouts([4 + t for t in range(30)], [40 + 9 * t for t in range(30)], acting=(15, 17)).cause == "more_work"
    assert rollouts([20 + 8 * t for t in range(30)], [30] * 30).cause is None  # the environment alone is drift


# -- steps that take longer since one moment, and courses that only look so


def slope(rng):
    return [100 * (1 + t / 100) * noise(rng, 0.05) for t in range(WINDOWS)]


def long_sawtooth(rng):
    epoch, growth = rng.randint(20, 120), rng.uniform(0.2, 1.5)
    return [100 * noise(rng, 0.05) * (1 + growth * (t % epoch) / epoch) for t in range(WINDOWS)]


def slow_epochs_in_turn(rng):
    epoch = rng.randint(10, 55)
    return [100 * noise(rng, 0.05) * (1.6 if t // epoch % 2 else 1) for t in range(WINDOWS)]


def faster_since(rng):
    jump = rng.randint(20, 200)
    return [100 * noise(rng, 0.1) * (0.5 if t > jump else 1) for t in range(WINDOWS)]


@pytest.mark.parametrize("course", [*COURSES, long_sawtooth, slope, slow_epochs_in_turn, faster_since])
def test_false_alarms_of_a_jump_are_rare_however_often_it_is_judged(course):
    alarms = 0
    for seed in range(SEEDS // 2):
        windows = course(random.Random(seed))
        alarms += any(jump_in(windows[:t]) is not None for t in range(10, WINDOWS, 7))
    assert alarms <= SEEDS / 200


@pytest.mark.parametrize("seed", range(20))
def test_a_jump_is_found_where_it_is_and_as_long_as_it_lasts(seed):
    rng = random.Random(seed)
    begin, ratio = rng.randint(20, 200), rng.uniform(1.5, 4.0)
    windows = [100 * noise(rng, 0.1) * (ratio if t >= begin else 1) for t in range(WINDOWS)]
    assert abs(jump_in(windows) - begin) <= 1
    assert jump_in(windows[: begin + 50]) is None  # not lasting yet
    assert jump_in([*windows, *(100.0 for _ in range(10))]) is None  # over


def test_its_moment_its_phase_and_its_line_are_told_and_it_is_no_fault():
    lengths_ms = [120.0 + t % 3 if t < 150 else 240.0 + t % 3 for t in range(240)]
    samples = [((BACKWARD, 9), ([14, 12], round((ms - 90) / 10)), ([15, 13], 2)) for ms in lengths_ms]
    jump = drift_of([ms - 90 for ms in lengths_ms], None, samples)
    assert (jump.severity, jump.cause, jump.estimated_speedup) == ("info", "jump", None)
    facts = ("99 % longer", "step 1,500 (2m30s in)", "121 ms -> 241 ms", "in other")
    assert all(fact in jump.headline for fact in facts)
    assert jump.evidence["since_step"] == 1500
    assert jump.evidence["grown_phase"] == "other"
    assert (jump.where[0].function, jump.where[0].line) == ("log", 12)


# -- A run that is slower than its own best hour


USUAL = {"data": 12, "forward": 30, "backward": 50, "optimizer": 8}


def course(*hours):
    """Phases of windows of a minute: so many times as long in each hour."""
    rng = random.Random(7)
    return lambda n: {
        name: ms * hours[min(n // 60, len(hours) - 1)] * rng.uniform(0.97, 1.03) for name, ms in USUAL.items()
    }


def hours(phases):
    made = [steps(60.0 * (n + 1), phases(n), first_index=10 * n, window_s=60.0) for n in range(60 * 3)]
    made = [(thread(each.t, 1.0, 0.0, window_s=60.0), each) for each in made]
    return [each for each in diagnose(one_process(NO_GPU, made)) if each.rule == "step_time_drift"]


def test_an_hour_that_is_slower_than_the_best_is_told_with_the_phase():
    (slow,) = hours(lambda n: course(1.0)(n) | {"data": 12 if n // 60 == 1 else 30})
    assert slow.cause == "slower_hour" and slow.severity == "warning"
    assert slow.headline.startswith("steps take 18 % longer than in the best hour, which ended 1h00m ago: ")
    assert slow.headline.endswith(", mostly in data")


def test_hours_that_are_alike_or_become_faster_or_do_more_work_are_in_order():
    assert not hours(course(1.0, 1.05, 1.0)) and not hours(course(1.3, 1.1, 1.0))
    (more,) = hours(lambda n: USUAL | ({"forward": 36, "backward": 60} if n // 60 != 1 else {}) | {"other": n % 3})
    assert (more.severity, more.cause) == ("info", "more_work")
