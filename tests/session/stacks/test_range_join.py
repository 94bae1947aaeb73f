"""Samples and user ranges: the join by the places where ranges were opened and closed."""

from tests.session.records import counted, frames, hot_lines, one_process, stacks, steps
from tuimon.bounds import HELD
from tuimon.records import Frame, RangePlace
from tuimon.session.stacks.process import RangeJoin
from tuimon.session.stacks.samples import RANGE

#: line 20-30: "step"; in it 22-24: "step/model"; model.py 5-8: "encode" inside it; log() as a whole: "log"
PLACES = [
    RangePlace("step", "train.py", "main", 20, 30),
    RangePlace("step/model", "train.py", "main", 22, 24),
    RangePlace("step/model/encode", "model.py", "forward", 5, 8),
    RangePlace("validate/model", "train.py", "validate", 40, 41),
    RangePlace("log", "log.py", "log", 1, 9),
]
FRAMES = {
    "before": ("train.py", 19, "main", "", True),
    "step": ("train.py", 21, "main", "", True),
    "model": ("train.py", 23, "main", "", True),
    "log it": ("train.py", 31, "main", "", True),
    "validate": ("train.py", 40, "validate", "", True),
    "encode": ("model.py", 6, "forward", "", True),
    "decode": ("model.py", 9, "forward", "", True),
    "log": ("log.py", 5, "log", "", True),
    "other step": ("other.py", 21, "main", "", True),
}


def session_of(samples, *records, places=PLACES):
    told = steps(1, {"forward": 10}, range_places=places)
    return one_process(frames(*FRAMES.values()), *records, told, stacks(2.5, *counted(FRAMES, samples)))


def ranges_of(stack, **more):
    (sample,) = session_of({stack: 1}, **more).over("recent").of(100).samples.rows
    return sample.ranges


def test_ranges_nest_by_place():
    assert ranges_of("before") == ()
    assert ranges_of("step") == ("step",)
    assert ranges_of("model") == ("step", "step/model")
    assert ranges_of("model, encode") == ("step", "step/model", "step/model/encode")
    assert ranges_of("model, decode") == ("step", "step/model")
    assert ranges_of("log it, log") == ("log",)
    assert ranges_of("other step") == ()


def test_a_place_counts_within_the_ranges_around_it_only():
    assert ranges_of("validate, encode") == ("validate/model",)  # "validate" itself has no known place
    assert ranges_of("step, encode") == ("step",)
    assert ranges_of("encode") == ()


def test_samples_taken_before_a_place_was_known_join_it_too():
    session = session_of({"model": 4}, places=[])
    assert session.over("recent").of(100).samples.rows[0].ranges == ()
    session.add(steps(3, {"forward": 10}, range_places=PLACES))
    assert session.over("recent").of(100).samples.rows[0].ranges == ("step", "step/model")


def test_hot_lines_of_a_range():
    session = session_of({"model, encode": 6, "model": 2, "before": 9})
    lines = hot_lines(session.over("recent"), 100, f"{RANGE}step/model")
    assert [(line.place.file, line.place.line, line.samples) for line in lines] == [
        ("model.py", 6, 6),
        ("train.py", 23, 2),
    ]
    assert sum(line.total for line in hot_lines(session.over("recent"), 100, f"{RANGE}nothing")) == 0


def test_places_are_bounded():
    many = [RangePlace(f"r{i % 500}", "a.py", "f", i, i) for i in range(5000)]
    join = RangeJoin()
    join.add_places(many)
    found = (join.ranges_of([Frame("a.py", n, "f", "", True)]) for n in range(500))
    assert 0 < sum(map(bool, found)) <= HELD
