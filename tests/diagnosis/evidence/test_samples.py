"""A function's share holds what it calls, and nothing of the training that a loop's function calls."""

import pytest

from tests.session.records import frames, one_process, stacks, steps
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.session.stacks.samples import Sample, Samples
from tuimon.session.stacks.trie import Trie

TORCH = "/v/lib/python3.11/site-packages/torch"
FRAMES = frames(
    ("train.py", 40, "main", "x = load(i)", True),  # 0
    ("train.py", 12, "load", "return sorted(rows, key=lambda row: row.cost)", True),
    ("train.py", 12, "<lambda>", "return sorted(rows, key=lambda row: row.cost)", True),
    ("train.py", 14, "load", "rows = decode(raw)", True),
    ("train.py", 5, "decode", "raw.split()", True),
    ("train.py", 44, "main", "loss = model(x)", True),  # 5
    (f"{TORCH}/nn/modules/module.py", 2, "_call_impl"),
    ("train.py", 45, "main", "loss.backward()", True),
    (f"{TORCH}/_tensor.py", 3, "backward"),
    ("train.py", 41, "main", "x = x.flip(0)", True),
    ("train.py", 43, "main", "for x in loader:", True),
    ("/v/lib/python3.11/site-packages/tuimon/agent/importlib_bootstrap/hooks.py", 9, "tuimon_fetch"),
    ("/v/lib/python3.11/site-packages/monai/transforms/spatial/functional.py", 222, "spatial_resample"),
    ("/v/lib/python3.11/site-packages/torch/nn/functional.py", 5628, "grid_sample"),
)


HOOK = ("/v/lib/python3.11/site-packages/tuimon/agent/importlib_bootstrap/hooks.py", 7, "tuimon_backward")


def hottest(phase, *samples, data=0.0):
    table = {"data": data, "between": 80.0 - data, "backward": 20.0}
    windows = steps(5.0, table, count=100), steps(6.0, table, first_index=100)
    sampled = stacks(8.0, *samples, ([5, 6], 20), ([7, 8, 20], 20))
    session = one_process(FRAMES, frames(HOOK, first=20), *windows, sampled)
    return evidence_of(session.over("recent").of(100)).hottest_in(phase)


def test_what_a_function_calls_and_its_lambdas_are_part_of_it():
    hot = hottest("data", ([0, 1, 2], 40), ([0, 1], 10), ([0, 3, 4], 25), ([9], 25))
    assert (hot.place.function, hot.place.line) == ("load", 12)
    assert hot.share == pytest.approx(0.75)


def test_a_hook_of_an_installed_tuimon_is_no_library_that_owns_the_loop():
    hot = hottest("backward", ([9], 60))
    assert (hot.place.line, hot.library) == (45, None)


def test_the_loop_itself_is_only_its_own_lines():
    hot = hottest("data", ([9], 60), ([0, 1], 40))
    assert (hot.place.function, hot.place.line) == ("main", 41)
    assert hot.share == pytest.approx(0.6)


def test_a_line_that_only_takes_batches_is_told_with_the_librarys_function_that_makes_them():
    hot = hottest("data", ([10, 11, 12, 13], 60), ([0, 1], 20), data=60.0)
    assert (hot.place.line, hot.library.function) == (43, "spatial_resample")


def test_time_between_several_passes_of_one_batch_is_divided_by_the_samples_of_what_markers_measure():
    at = [Sample(Trie().node([]), n, phase, excluded=True) for phase, n in (("forward", 30), ("other", 10))]
    (few, none) = (Samples((*at, Sample(Trie().node([]), 1, "data"))).split, Samples((at[0],)).split)
    assert few.shares == {
        "data": pytest.approx(1 / 41),
        "forward": pytest.approx(30 / 41),
        "other": pytest.approx(10 / 41),
    }
    assert none.shares["forward"] == 1.0
    many = Samples((*at, Sample(Trie().node([]), 20, "data"))).split
    assert many.shares["data"] == 1.0
