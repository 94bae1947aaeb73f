"""A model that computes on the CPU, on literal sessions."""

import math

import pytest

from tests.diagnosis.cpu import BACKWARD, FORWARD, HEALTHY, run
from tests.session.records import frames, process, stacks, thread, threads
from tuimon.records import Gpu, Loader, LoaderFacts, MeasuredBatches, UnusedGradients


def test_a_healthy_cpu_training_has_nothing_else_reported():
    (only,) = run(HEALTHY, threads(12, (100, "python", 1.0, "running"), cpu_ratio=1.9))
    assert (only.rule, only.severity) == ("compute_bound_cpu", "info")
    assert "1.9 of 2 cores" in only.headline


@pytest.mark.parametrize(
    ("cpu", "delay", "computes"), [(0.11, 0.1, False), (0.3, 0.6, True), (0.11, None, False), (None, None, True)]
)
def test_a_wait_is_no_computation(cpu, delay, computes):
    """Asleep in its forward pass, a training needs no GPU; waiting for a core, it does."""
    found = run(HEALTHY, thread(12, cpu, delay, state="waiting"))
    assert ("compute_bound_cpu" in {finding.rule for finding in found}) == computes


def test_nothing_is_reported_of_the_cpu_when_a_gpu_computes():
    gpu = Gpu(t=1, pid=0, index=0, uuid="GPU-a", name="A", pids=[100])
    assert run(HEALTHY, gpu) == []


LINES = frames(
    ("train.py", 62, "main", "loss.backward(retain_graph=True)", True),
    ("train.py", 64, "main", "(slope,) = autograd.grad(loss, x, retain_graph=True)", True),
    ("/lib/site-packages/torch/autograd/__init__.py", 9, "grad"),
    first=20,
)
KEEPS, SLOPE = [20, BACKWARD[1]], [21, 22, BACKWARD[1]]


def batches(padding, fetches, row_bytes=16, number=0):
    """A loader without workers whose batches of text hold this part of padding; so many were fetched in 12 s."""
    facts = LoaderFacts("Rows", "map", 0, batch_size=16)
    measured = MeasuredBatches(10, 10_000 * row_bytes, 160, 10, None, 10_000, int(10_000 * padding), tensors=30)
    rows = {"facts": facts, "batches": measured, "window_s": 12.0, "fetches": fetches}
    return Loader(t=12.0, pid=100, number=number, role="train", **rows)


def bound_by(*loaders, counted=(), backwards=10):
    busy = threads(12, (100, "python", 1.0, "running"), cpu_ratio=1.9)
    seen = [LINES, *(stacks(t, *counted) for t in range(1, 13))] if counted else []
    (only,) = run(HEALTHY, busy, *loaders, *seen, backwards=backwards)
    assert only.rule == "compute_bound_cpu"
    return only


@pytest.mark.parametrize(
    ("padding", "row_bytes", "cause", "severity", "gain"),
    [
        (0.1, 16, None, "info", None),
        (0.86, 16, "padding", "critical", 1 / (1 - 0.85 * 0.86)),
        (0.86, 600_000, "padding", "info", None),  # images beside them: who knows what the model is at
    ],
)
def test_positions_that_are_padding_cost_their_part_of_the_passes(padding, row_bytes, cause, severity, gain):
    found = bound_by(batches(padding, 120, row_bytes))
    assert (found.cause, found.severity) == (cause, severity)
    assert found.estimated_speedup == pytest.approx(gain)
    assert ("pad each batch to its own longest text" in found.action) == (cause is not None)
    assert ("nothing holds" in found.action) == (cause is None)


@pytest.mark.parametrize(
    ("fetches", "line", "cause", "gain"),
    [
        (120, KEEPS, "repeated_backward", 1 / (1 - 0.45 * 3 / 4)),
        (120, None, "repeated_backward", None),  # nobody knows of which graphs they are
        (120, BACKWARD, None, None),  # each is of a graph of its own
        (480, KEEPS, None, None),  # gradients of four batches add up
        ((240, 240), KEEPS, None, None),  # the same, of a loader for each epoch
        (120, SLOPE, None, None),  # gradients that are returned are no update's
    ],
)
def test_of_several_passes_over_one_graph_one_would_do(fetches, line, cause, gain):
    loaders = [
        batches(0.0, each, number=n) for n, each in enumerate(fetches if isinstance(fetches, tuple) else [fetches])
    ]
    found = bound_by(*loaders, counted=[(FORWARD, 15), (line, 30)] if line else [], backwards=40)
    assert found.cause == cause
    assert found.estimated_speedup == pytest.approx(gain, abs=0.001)
    assert ("backward runs 4 times for each batch" in found.headline) == (cause is not None)
    assert ("mostly backward, 4 times a step" in found.headline) == (cause is None)


@pytest.mark.parametrize(("backwards", "told"), [(160, True), (80, False)])
def test_a_pass_for_each_sample_of_a_batch_is_told(backwards, told):
    found = bound_by(batches(0.0, 120), counted=[(FORWARD, 15), (BACKWARD, 30)], backwards=backwards)
    assert (found.cause == "repeated_backward") is told
    if told:
        assert "backward runs 16 times for each batch, once for each of its samples" in found.headline
        assert "vmap(grad(loss))" in found.action
        assert found.estimated_speedup == pytest.approx(1 / (1 - 0.85 * 15 / 16)) and found.best.gain.high == math.inf


@pytest.mark.parametrize(("inputs", "cause"), [((8, 10), "unused_gradients"), ((1, 100), None), ((0, 0), None)])
def test_gradients_for_nobody_cost_their_part_of_backward(inputs, cause):
    busy = threads(12, (100, "python", 1.0, "running"), cpu_ratio=1.9)
    (found,) = run(HEALTHY, busy, process(unused_gradients=UnusedGradients(44, 46, *inputs)))
    assert found.cause == cause
    if cause is not None:
        assert "gradients of 44 of 46 parameters" in found.headline and "requires_grad_(False)" in found.action
        assert found.share_of_step == pytest.approx(0.45 * 0.8)
        assert 1.2 < found.best.gain.low < found.best.gain.high <= 1 / (1 - 1.1 * 0.45 * 0.8)


SLICED = frames(
    ("model.py", 9, "forward", "x = torch.relu(x)", True),
    *(
        ("model.py", 12, "forward", source, True, *[""] * 2, None, None, (), loop, (), False, int(loop))
        for loop, source in (
            (True, "level = 0.9 * level + z[:, day]"),
            (True, "level = level + z[..., t : t + 3, :].sum(1)"),
            (True, "level = level + z[t]"),
            (True, "level = level + z.narrow(1, t, 1)"),
            (True, "z = self.layers[i](z)"),
            (False, "z = z[:, order]"),
        )
    ),
    first=20,
)


@pytest.mark.parametrize(
    ("line", "backward", "cause"),
    [*((line, 70, "slices") for line in (21, 22, 23, 24)), (21, 40, None), (25, 70, None), (26, 70, None)],
    ids=["slice", "window", "first", "narrow", "usual", "layers", "no loop"],
)
def test_parts_of_a_tensor_that_a_loop_takes_make_backward_long(line, backward, cause):
    busy, phases = thread(12, 0.99), {"data": 1, "forward": 10, "backward": backward, "optimizer": 2, "other": 1}
    seen = [stacks(t, ([*FORWARD, 20], 3), ([*FORWARD, line], 7), (BACKWARD, 40)) for t in range(1, 13)]
    (found,) = run(phases, busy, SLICED, *seen)
    assert found.cause == cause
    if cause is not None:
        assert "x.unbind(1)" in found.action and found.where[0].line == 12
        assert found.estimated_speedup == pytest.approx(84 / (84 - 40), rel=0.01)  # less three times forward
