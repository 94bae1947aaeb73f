"""How far a run has come, from literal records."""

import pytest
from msgspec import structs

from tests.session import records
from tests.session.records import session_of
from tests.views.streams import gpu
from tuimon.records import Exit, Loader, LoaderFacts, MeasuredBatches, TracedFlops, TraceTaken
from tuimon.session.progress import Progress, progress_of, run_progress
from tuimon.views.words import flops_rate_text, left_text, position_text, progress_text, rate_texts

PHASES = {"data": 20, "forward": 30, "backward": 40, "optimizer": 10}


def loader(t, number=0, batch_size=32, **more):
    facts = LoaderFacts(dataset="D", kind="map", workers=2, batch_size=batch_size)
    return Loader(t=t, pid=100, number=number, window_s=1.0, role="train", fetches=200, facts=facts, **more)


def run(*more, mode="run", seconds=20, step=None, **facts):
    """Ten steps a second."""
    made = records.loop(seconds, PHASES, **(step or {}))
    return session_of(structs.replace(records.header(), mode=mode), records.process(**facts), made, more)


def epoch_of(known: Progress) -> tuple[int | None, ...]:
    return known.epochs_done, known.batch, known.batches


def test_nothing_is_made_up():
    known = run_progress(run().shown().of(100))
    assert progress_text(known) == ""
    assert (position_text(known), left_text(known), rate_texts(known)) == ("", "", [])


def test_what_a_program_says_of_its_steps_goes_first():
    known = run_progress(run(loader(20.0), step={"samples": 640, "tokens": 81920}).shown().of(100))
    assert (known.samples_per_s, known.tokens_per_s) == (640, 81920)
    assert rate_texts(known) == ["640 samples/s", "81.9k tokens/s"]


def test_samples_and_tokens_of_the_batches_of_the_training_loader():
    batches = MeasuredBatches(2, 1 << 20, 64, 2, None, 8192, 2048)
    known = run_progress(run(loader(20.0, batches=batches)).shown().of(100))
    assert (known.samples_per_s, known.tokens_per_s) == (320, 10 * (8192 - 2048) / 2)
    assert "tokens/s (25 % padding)" in progress_text(known)
    unsized = run_progress(
        run(loader(20.0, batch_size=None, batches=MeasuredBatches(2, 1 << 20, 50, 2))).shown().of(100)
    )
    assert (unsized.samples_per_s, unsized.tokens_per_s) == (250, None)


def test_of_two_training_loaders_one_unknown_leaves_the_sum_unknown():
    known = run_progress(run(loader(20.0), loader(20.0, number=1, batch_size=None)).shown().of(100))
    assert known.samples_per_s is None


def test_the_steps_that_a_trainer_plans():
    known = run_progress(run(planned_steps=1000).shown().of(100))
    assert (known.step, known.steps) == (200, 1000)
    assert (known.left_s, known.left_of) == (pytest.approx(80, rel=0.01), "run")
    assert (position_text(known), left_text(known)) == ("step 200 of 1 000", "~1m20s left")


def test_a_plan_that_was_exceeded_is_no_plan():
    assert run_progress(run(planned_steps=100).shown().of(100)).steps is None


def test_epochs_of_the_training_loader():
    ended = Loader(t=19.0, pid=100, number=0, window_s=1.0, role="train", epochs=2)
    known = run_progress(run(ended, loader(20.0, given=400, length=1000), planned_epochs=10).shown().of(100))
    assert epoch_of(known) == (2, 400, 1000)
    assert (known.left_s, known.left_of) == ((8 * 1000 - 400) / 10, "run")
    assert position_text(known) == "epoch 3 of 10, batch 400 of 1 000"
    alone = run_progress(run(ended, loader(20.0, given=400, length=1000)).shown().of(100))
    assert (position_text(alone), left_text(alone)) == ("epoch 3, batch 400 of 1 000", "~1m00s left in this epoch")


def test_an_epoch_with_more_batches_than_counted_has_no_length():
    known = run_progress(run(loader(20.0, given=1001, length=1000)).shown().of(100))
    assert (epoch_of(known), known.left_s) == ((0, 1001, None), None)


def test_epochs_before_an_attach_are_unknown():
    known = run_progress(
        run(loader(20.0, given=400, length=1000, epochs=1), mode="attach", planned_epochs=10).shown().of(100)
    )
    assert (epoch_of(known), known.epochs) == ((None, 400, 1000), None)
    assert position_text(known) == "batch 400 of 1 000"


def test_of_an_ended_run_nothing_is_left():
    known = run_progress(
        run(loader(20.0, epochs=3), Exit(t=21.0, pid=100, exit_code=0), planned_epochs=3).shown().of(100)
    )
    assert known.left_s is None
    assert position_text(known) == "3 of 3 epochs done"
    assert progress_text(known).startswith("3 of 3 epochs done")


def ranks(*more, number=2, since=1):
    """Ranks that make ten steps a second."""
    found = session_of(records.header(), [records.rank(n, of=number) for n in range(number)])
    made = [records.loop(range(since, 21), PHASES, pid=100 + n) for n in range(number)]
    return records.extend(found, made, more)


def test_samples_are_those_of_all_ranks():
    session = ranks(loader(20.0), structs.replace(loader(20.0, batch_size=16), pid=101))
    known = run_progress(session.shown().of(100))
    assert (known.samples_per_s, known.ranks) == (320 + 160, 2)
    assert run_progress(session.shown().of(101)).samples_per_s == known.samples_per_s
    assert progress_of(session.shown().of(101)).samples_per_s == 160
    assert progress_text(known) == "480 samples/s on 2 ranks"


def test_a_rank_that_loads_no_data_or_has_ended_adds_nothing():
    known = run_progress(ranks(loader(20.0)).shown().of(100))
    assert (known.samples_per_s, known.ranks) == (320, 1)
    gone = structs.replace(records.process(pid=101, rank=1, world_size=2, ppid=99), t=20.5, ended=True)
    other = structs.replace(loader(20.0), pid=101)
    assert run_progress(ranks(loader(20.0), other, gone).shown().of(100)).samples_per_s == 320


# -- the operations of a traced step at the pace of all, against the peak of the GPU


TERA = 10**12
H100 = "NVIDIA H100 80GB HBM3"


def trace(*rows, steps=2, t=20.0):
    return TraceTaken(t=t, pid=100, begin_s=1.0, end_s=2.0, steps=steps, wanted=steps, file="t", flops=[*rows] or None)


def traced(*traces, name=H100, gpus=1, parent=None, **facts):
    """Ten steps a second."""
    return records.one_process(
        [structs.replace(gpu(1, index), name=name, parent_uuid=parent) for index in range(gpus)],
        records.loop(20, {"forward": 50, "backward": 50}),
        traces,
        gpu_uuids=[f"GPU-{index}" for index in range(gpus)],
        **facts,
    )


def mfu(session):
    return progress_of(session.shown().of(100)).mfu_ratio


HALF = TracedFlops("product", "bfloat16", 40 * TERA)  # of two steps: 200 TFLOPS at ten steps a second


def test_without_a_trace_nothing_is_known():
    for session in (traced(), traced(trace())):  # of the one, operations could not be counted
        found = run_progress(session.shown().of(100))
        assert found.flops_per_s is found.mfu_ratio is None


def test_a_share_of_the_dense_peak():
    known = run_progress(traced(trace(HALF)).shown().of(100))
    assert known.flops_per_s == pytest.approx(200 * TERA)
    assert known.mfu_ratio == pytest.approx(200 / 989.5)
    assert flops_rate_text(known) == "20 % MFU"
    assert mfu(traced(trace(HALF), gpus=2)) == pytest.approx(100 / 989.5)


def test_the_latest_trace_that_has_counts_is_the_one():
    later = trace(structs.replace(HALF, flops=20 * TERA), steps=4, t=21.0)
    assert mfu(traced(trace(HALF), later, trace(t=22.0))) == pytest.approx(50 / 989.5)


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989.5),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA L40S", 362),
        ("NVIDIA A10G", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("Tesla T4", None),  # has none of bfloat16
    ],
)
def test_peaks_by_the_name_of_the_gpu(name, peak):
    found = mfu(traced(trace(HALF), name=name))
    assert found == (None if peak is None else pytest.approx(200 / peak))


def test_a_part_of_a_gpu_and_a_gpu_that_is_not_known_have_no_peak():
    assert mfu(traced(trace(HALF), parent="GPU-9")) is None
    assert mfu(traced(trace(HALF), gpus=0)) is None
    assert flops_rate_text(run_progress(traced(trace(HALF), gpus=0).shown().of(100))) == "200 TFLOPS"


def test_each_type_has_its_own_peak():
    """Single precision rounds to TF32 as torch's settings say, of cuDNN and of the rest."""
    rows = (TracedFlops("product", "float32", 10 * TERA), TracedFlops("convolution", "float32", 10 * TERA))
    assert mfu(traced(trace(*rows), tf32=False, cudnn_tf32=True)) == pytest.approx(50 / 67 + 50 / 494.5)
    assert mfu(traced(trace(*rows), tf32=True, cudnn_tf32=True)) == pytest.approx(100 / 494.5)
    assert mfu(traced(trace(*rows), tf32=True)) is None
    assert mfu(traced(trace(*rows), name="Tesla V100-SXM2-16GB")) == pytest.approx(100 / 15.7)
