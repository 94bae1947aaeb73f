"""Shares against programs that know what they use; how far phases are off is measured by ``bench --only accuracy``."""

from collections import Counter

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
    # four standard errors of a share of 0.6: sampling errs by more once in 16,000 runs
    assert functions.off_points <= 400 * (0.6 * 0.4 / functions.samples) ** 0.5
    # the kernel counts, nothing is sampled: what is off is the moment at which either side reads its counter
    assert threads.off_points < 5


#: A function of the program or of torch, outer ones first, and the phase of all that runs in it.
PHASE_IN = {"evaluate": "eval", "__next__": "data", "backward": "backward", "wrapper": "optimizer"}


@pytest.mark.torch
def test_samples_without_markers_are_in_the_phase_of_the_function_they_were_taken_in() -> None:
    watched = inferred.watch("evaluated", 3.0, max_cpu_ratio=1.0, samples=2 * SAMPLES)  # also of the shortest phase
    found: dict[str, Counter[str]] = {phase: Counter() for phase in PHASE_IN.values()}
    for sample in watched.session(markers=False).over("whole").of(watched.pid).samples_of(watched.pid).rows:
        inside = {frame.function for frame in sample.node.frames}
        phase = next((phase for function, phase in PHASE_IN.items() if function in inside), None)
        if phase is not None:
            found[phase][sample.phase] += sample.count
    assert {phase: max(counts, key=counts.__getitem__, default=None) for phase, counts in found.items()} == {
        name: name for name in found
    }
    right = sum(counts[phase] for phase, counts in found.items())
    assert right >= 0.95 * sum(counts.total() for counts in found.values())  # few are read while the stack changes
