"""Timed steps of literal markers: what lies between boundaries, what breaks a step, what is given up."""

import re

import pytest

from tuimon.agent.ring import layout
from tuimon.sources.gpu_clock.offset import Chain
from tuimon.sources.gpu_clock.tracker import TimedStepFinder
from tuimon.sources.loop.machine import LoopMachine

_KINDS = {
    "fetch(": layout.FETCH_BEGIN,
    "fetch)": layout.FETCH_END,
    "bwd(": layout.BACKWARD_BEGIN,
    "bwd)": layout.BACKWARD_END,
    "opt(": layout.OPTIMIZER_BEGIN,
    "opt)": layout.OPTIMIZER_END,
}
_TOKEN = re.compile(r"(\w+[()]|stop)(?:@(\d))?=(\d+)(?:\+(\d+))?([*?-]?)")
#: How far launches run ahead where a script does not say.
FAR = 1000
PLAIN = "fetch)=10 bwd(=20 bwd)=40 opt(=50 opt)=60 fetch(=65"


class Play:
    """A script is of boundaries and the moments at which CPU and GPU came to them: ``fetch)=10``.

    ``fetch)=10+3``: the GPU came 3 later; else launches are far ahead. After the moment: ``*`` the GPU had nothing to
    do, ``-`` there was no event, ``?`` it never happened; ``stop`` is the end of an iterator; ``@2`` names an iterator
    or optimizer, ``point(`` is a place inside a backward pass. A fetch without a beginning takes no time.
    """

    def __init__(self):
        self.machine = LoopMachine()
        self.finder = TimedStepFinder()
        self.chain = Chain(0)
        self.number = layout.FIRST_EVENT - 1

    def __call__(self, script):
        """The steps that are known after it."""
        tokens = script.split()
        events = [self._mark(*_TOKEN.fullmatch(token).groups()) for token in tokens]
        for number, gpu_ns, reached_ns, is_idle in filter(None, events):
            boundary = self.finder.waiting.pop(number, None)
            if boundary is not None:
                boundary.chain, boundary.gpu_ns, boundary.stream_idle = self.chain, gpu_ns, is_idle
                boundary.earliest_ns = boundary.latest_ns = reached_ns
        return self.finder.take_steps()

    def _feed(self, time, kind, flag, value):
        self.finder.add_stretch(self.machine.feed(time, kind, flag, value))

    def _mark(self, name, value, time, ahead, sign):
        time, value = int(time), int(value or 1)
        if name in ("fetch)", "stop") and not list(self.machine.open_fetches()):
            self._feed(time, layout.FETCH_BEGIN, 0, value)
        if name == "stop":
            self._feed(time, layout.FETCH_END, 1, value)
            return None
        kind = _KINDS[name]
        if kind == layout.FETCH_BEGIN or sign == "-":
            self._feed(time, kind, 0, value)
            return None
        self.number = self.number + 1 if self.number < 0xFFFF else layout.FIRST_EVENT
        self._feed(time, kind, self.number, value)
        if sign == "?":
            return None
        lead = 0 if sign == "*" else FAR if ahead is None else int(ahead)
        return self.number, time + int(ahead or 0), time + lead, sign == "*"


def spans(step):
    """name -> span, idle, bound of further idle time."""
    sums = {}
    for phase in step.phases():
        times = phase.span_ns, phase.idle_ns, phase.maybe_idle_ns
        sums[phase.name] = tuple(a + b for a, b in zip(sums.get(phase.name, (0, 0, 0)), times, strict=True))
    return {name: times for name, times in sums.items() if times[0]}


@pytest.mark.parametrize(
    ("script", "data", "other"),
    [
        (f"{PLAIN} fetch)=90*", (25, 25, 0), (15, 0, 5)),  # 50..60 on its own; 60..65 before the fetch
        # the CPU's update ended before 65: the GPU came to the fetch late, and waited for less
        ("fetch)=10 bwd(=20 bwd)=40 opt(=50 opt)=80 fetch(=65 fetch)=90*", (10, 10, 0), (10, 0, 0)),
    ],
)
def test_a_gpu_that_has_nothing_to_do_at_the_end_of_a_fetch_has_waited_for_it(script, data, other):
    (step,) = Play()(script)
    assert (spans(step)["data"], spans(step)["other"]) == (data, other)


@pytest.mark.parametrize(
    ("end", "name"), [("bwd(=20*", "forward"), ("bwd)=40*", "backward"), ("opt)=60*", "optimizer")]
)
def test_any_other_stretch_at_whose_end_the_gpu_waits_is_paced(end, name):
    script = f"{PLAIN} fetch)=90".replace(end.rstrip("*"), end)
    (step,) = Play()(script)
    span, idle, paced = spans(step)[name]
    assert (idle, paced) == (0, span)


@pytest.mark.parametrize(
    ("script", "at_most"),
    [
        ("fetch)=0+0 bwd(=20+15 bwd)=80+55 opt(=85+50 opt)=90+50 fetch)=95+50", (20, 45, 0)),  # not 0, 0
        ("fetch)=0+40 bwd(=20+50 bwd)=60+60 opt(=65+60 opt)=70+60 fetch)=75+60", (0, 0, 0)),
        ("fetch)=0+5 bwd(=20* bwd)=60+60 opt(=65+60 opt)=70+60 fetch)=75+60", (15, 40, 0)),
        ("fetch)=0+5 bwd(=20* bwd)=60* opt(=65+3 opt)=90+30 fetch)=95+30", (15, 40, 22)),
    ],
)
def test_a_lead_at_the_end_of_a_phase_does_not_show_that_the_gpu_was_busy_at_its_beginning(script, at_most):
    (step,) = Play()(script)
    assert tuple(sum(spans(step)[name][1:]) for name in ("forward", "backward", "optimizer")) == at_most


def test_a_lead_that_is_not_known_well_leaves_the_bound_loose():
    play = Play()
    (step,) = play("fetch)=10+20 bwd(=40+20 bwd)=80+20 opt(=85+20 opt)=90+20 fetch)=95+20")
    first = step.boundaries[0]
    assert spans(step)["forward"] == (30, 0, 10)
    first.earliest_ns = 15
    assert spans(step)["forward"] == (30, 0, 25)
    first.earliest_ns = 10  # only that it was not reached before it was recorded
    assert spans(step)["forward"] == (30, 0, 30)


UPDATE = "opt(=0- opt)=0-"
TRAINING = "bwd(@0={0} bwd)@0={1} opt(={1} opt)={2}"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("fetch)=0 opt(=10 opt)=20 fetch)=30", "forward 10 optimizer 10 other 10"),
        (
            f"{UPDATE} fetch)=0 bwd(=10 bwd)=20 bwd(=35 bwd)=40 opt(=41 opt)=43 fetch)=43",
            "forward 25 backward 15 other 1 optimizer 2",
        ),
        ("fetch)=0 opt(=10 bwd(=15 bwd)=35 opt)=40 fetch)=40", "forward 15 backward 20 optimizer 5"),
        (
            "fetch)=0 bwd(=10 bwd)=20 opt(=21 opt)=30 opt(@2=35 opt)@2=40 fetch)=40",
            "forward 10 backward 10 other 6 optimizer 14",
        ),
        ("bwd(=0 bwd)=20 opt(=20 opt)=30 bwd(=50", "backward 20 optimizer 10 forward 20"),
        ("bwd(=0 bwd)=20 bwd(=50", "backward 20 forward 30"),
        ("fetch)=0 bwd(=10 opt(=12- opt)=14- bwd)=20 fetch)=30", "forward 10 backward 10 other 10"),
        # zipped evaluation: all but the first wait for the second loader
        (
            "fetch)@1=0 fetch)@2=10 fetch)@1=30 fetch)@2=40 bwd(=50 bwd)=60 opt(=60 opt)=70 fetch)@1=70",
            "other 10 eval 30 forward 10 backward 10 optimizer 10",
        ),
        # batches of two loaders in one step are no evaluation
        (
            "fetch)@1=0 fetch)@2=10 bwd(=20 bwd)=30 opt(=30 opt)=40 fetch)@1=40",
            "other 10 forward 10 backward 10 optimizer 10",
        ),
        # what is nested has no event
        (
            "fetch)=0 bwd(=10 bwd(=12- bwd)=14- bwd)=20 opt(@5=20 opt(@1=22- opt)@1=28- opt)@5=30 fetch)=30",
            "forward 10 backward 10 optimizer 10",
        ),
        # an update that raised is followed by another
        (
            f"{UPDATE} fetch)=0 bwd(=10 bwd)=20 opt(@1=20 bwd(=30 bwd)=40 opt(@2=40 opt)@2=50 fetch)=50",
            "forward 20 backward 20 optimizer 10",
        ),
        # a second batch of an iterator without a backward was evaluation
        (
            "fetch)=0 bwd(=10 bwd)=20 opt(=20 opt)=30 fetch)@9=40 fetch)@9=70 fetch)@9=100 stop@9=105 fetch)=120 "
            "bwd(=130 bwd)=140 opt(=140 opt)=150 fetch)=150",
            "eval 80 forward 10 backward 10 optimizer 10",
        ),
        # an evaluation that takes gradients is one with its backward passes
        (
            f"fetch)=0 {TRAINING.format(10, 20, 30)} fetch)=30 {TRAINING.format(40, 50, 60)} fetch)@9=70 bwd(=80 "
            f"bwd)=90 fetch)@9=100 bwd(=110 bwd)=120 stop@9=125 fetch)=130 {TRAINING.format(140, 150, 160)} fetch)=160",
            "eval 60 forward 10 backward 10 optimizer 10",
        ),
        # backwards that were not timed, after one that closed a step
        (
            "bwd(=0 bwd)=20 bwd(=50 bwd)=60- bwd(=70- bwd)=80- bwd(=90- bwd)=95- bwd(=100 bwd)=110 bwd(=130",
            "backward 10 forward 20",
        ),
    ],
)
def test_the_last_step_of_other_loops(script, expected):
    *_, step = Play()(script)
    assert " ".join(f"{name} {span}" for name, (span, _, _) in spans(step).items()) == expected


def test_a_step_without_one_of_its_times_is_given_up_when_a_later_one_is_known():
    play = Play()
    assert play("fetch)=0 bwd(=10? bwd)=20 opt(=20 opt)=30 fetch)=30") == []
    assert len(play("bwd(=40 bwd)=50 opt(=50 opt)=60 fetch)=70")) == 1


def test_an_optimizer_that_is_no_longer_seen_bounds_no_steps():
    play = Play()
    play("fetch)=0 bwd(=10 bwd)=20 opt(=20 opt)=30 fetch)=30-")
    for _ in range(1000):
        play("bwd(=40- bwd)=50-")
    (step,) = play("bwd(=60 bwd)=80 bwd(=90")
    assert spans(step) == {"backward": (20, 0, 0), "forward": (10, 0, 0)}
