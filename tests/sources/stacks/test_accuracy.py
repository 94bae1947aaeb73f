"""Shares against programs that know what they use: the short form of ``python -m bench --only accuracy``."""

from __future__ import annotations

import pytest

from bench import accuracy, inferred
from tuimon.sources.stacks import pyspy

if pyspy.find() is None:
    pytest.skip("py-spy is not installed", allow_module_level=True)


#: Their number is given, not how long they take: on a busy machine py-spy takes fewer in the same time.
SAMPLES = 120


def test_shares_of_functions_and_threads() -> None:
    functions, threads = accuracy.split(1.0, max_cpu_ratio=1.0, samples=SAMPLES)
    assert sum(functions.truth.values()) == pytest.approx(1.0)
    assert functions.truth["sixty"] == pytest.approx(0.6, abs=0.05)  # the program does what it says
    # four standard errors of a share of 0.6: sampling errs by more once in 16,000 runs
    assert functions.off_points <= 400 * (0.6 * 0.4 / functions.samples) ** 0.5
    # the kernel counts, nothing is sampled: what is off is the moment at which either side reads its counter
    assert threads.off_points < 5


@pytest.mark.torch
def test_inferred_phases_are_those_of_the_markers() -> None:
    one = inferred.infer("evaluated", 3.0, max_cpu_ratio=1.0, samples=SAMPLES)
    assert one.samples >= SAMPLES / 2
    assert one.marked.keys() == one.inferred.keys()
    for name, share in one.marked.items():
        # 5 points as promised, and four standard errors for so few samples
        assert abs(one.inferred[name] - share) <= 0.05 + 4 * (share * (1 - share) / one.samples) ** 0.5, name
