"""How far a run has come, from literal records."""

import pytest
from msgspec import structs

from tests.session import records
from tests.session.records import session_of
from tests.views.streams import gpu
from tuimon.records import Exit, Loader, LoaderFacts, MeasuredBatches, Printed, TracedFlops, TraceTaken
from tuimon.session.progress import Progress, progress_of, run_progress
from tuimon.views.run_text import flops_rate_text, left_text, position_text, progress_text, rate_texts

PHASES = {"data": 20, "forward": 30, "backward": 40, "optimizer": 10}


def loader(t, number=0, batch_size=32, **more):
    facts = LoaderFacts(dataset="D", kind="map", workers=2, batch_size=batch_size)
    return Loader(t=t, pid=100, number=number, window_s=1.0, role="train", fetches=200, facts=facts, **more)


def run(*more, mode="run", seconds=20, step=None, **facts):
    """Ten steps a second."""
    made = records.loop(seconds, PHASES, **(step or {}))
    return session_of(structs.replace(records.header(), mode=mode), records.process(**facts), made, more)


def known(session, pid=100):
    return run_progress(session.shown().of(pid))


def epoch_of(found: Progress) -> tuple[int | None, ...]:
    return found.epochs_done, found.batch, found.batches


def test_nothing_is_made_up():
    found = known(run())
    assert progress_text(found) == ""
    assert (position_text(found), left_text(found), rate_texts(found)) == ("", "", [])


def test_what_a_program_says_of_its_steps_goes_first():
    found = known(run(loader(20.0), step={"samples": 640, "tokens": 81920}))
    assert (found.samples_per_s, found.tokens_per_s) == (640, 81920)
    assert rate_texts(found) == ["640 samples/s", "81.9k tokens/s"]


def test_samples_and_tokens_of_the_batches_of_the_training_loader():
    batches = MeasuredBatches(2, 1 << 20, 64, 2, None, 8192, 2048)
    found = known(run(loader(20.0, batches=batches)))
    assert (found.samples_per_s, found.tokens_per_s) == (320, 10 * (8192 - 2048) / 2)
    assert "tokens/s (25 % padding)" in progress_text(found)
    unsized = known(run(loader(20.0, batch_size=None, batches=MeasuredBatches(2, 1 << 20, 50, 2))))
    assert (unsized.samples_per_s, unsized.tokens_per_s) == (250, None)


def test_of_two_training_loaders_one_unknown_leaves_the_sum_unknown():
    found = known(run(loader(20.0), loader(20.0, number=1, batch_size=None)))
    assert found.samples_per_s is None


def test_the_steps_that_a_trainer_plans():
    found = known(run(planned_steps=1000))
    assert (found.step, found.steps) == (200, 1000)
    assert (found.left_s, found.left_of) == (pytest.approx(80, rel=0.01), "run")
    assert (position_text(found), left_text(found)) == ("step 200 of 1,000", "~1m20s left")


def test_a_plan_that_was_exceeded_is_no_plan():
    assert known(run(planned_steps=100)).steps is None


def test_epochs_of_the_training_loader():
    ended = Loader(t=19.0, pid=100, number=0, window_s=1.0, role="train", epochs=2)
    found = known(run(ended, loader(20.0, given=400, length=1000), planned_epochs=10))
    assert epoch_of(found) == (2, 400, 1000)
    assert (found.left_s, found.left_of) == ((8 * 1000 - 400) / 10, "run")
    assert position_text(found) == "epoch 3 of 10, batch 400 of 1,000"
    alone = known(run(ended, loader(20.0, given=400, length=1000)))
    assert (position_text(alone), left_text(alone)) == ("epoch 3, batch 400 of 1,000", "~1m00s left in this epoch")


def test_an_epoch_with_more_batches_than_counted_has_no_length():
    found = known(run(loader(20.0, given=1001, length=1000)))
    assert (epoch_of(found), found.left_s) == ((0, 1001, None), None)


def test_epochs_before_an_attach_are_unknown():
    found = known(run(loader(20.0, given=400, length=1000, epochs=1), mode="attach", planned_epochs=10))
    assert (epoch_of(found), found.epochs) == ((None, 400, 1000), None)
    assert position_text(found) == "batch 400 of 1,000"


def test_of_an_ended_run_nothing_is_left():
    found = known(run(loader(20.0, epochs=3), Exit(t=21.0, pid=100, exit_code=0), planned_epochs=3))
    assert found.left_s is None
    assert position_text(found) == "3 of 3 epochs done"
    assert progress_text(found).startswith("3 of 3 epochs done")


def test_the_time_left_in_a_place_as_printed_ends_with_the_run():
    place = Printed(t=20.0, pid=0, place="Epoch 1: 450 of 1000, 00:37 left")
    assert position_text(known(run(place))) == place.place
    assert position_text(known(run(place, Exit(t=21.0, pid=100, exit_code=0)))) == "Epoch 1: 450 of 1000"


def ranks(*more):
    """Two ranks that make ten steps a second."""
    made = [records.loop(20, PHASES, pid=100 + n) for n in range(2)]
    return session_of(records.header(), [records.rank(n) for n in range(2)], made, more)


def test_samples_are_those_of_all_ranks():
    session = ranks(loader(20.0), structs.replace(loader(20.0, batch_size=16), pid=101))
    found = known(session)
    assert (found.samples_per_s, found.ranks) == (320 + 160, 2)
    assert known(session, 101).samples_per_s == found.samples_per_s
    assert progress_of(session.shown().of(101)).samples_per_s == 160
    assert progress_text(found) == "480 samples/s on 2 ranks"


def test_a_rank_that_loads_no_data_or_has_ended_adds_nothing():
    found = known(ranks(loader(20.0)))
    assert (found.samples_per_s, found.ranks) == (320, 1)
    gone = structs.replace(records.process(pid=101, rank=1, world_size=2, ppid=99), t=20.5, ended=True)
    other = structs.replace(loader(20.0), pid=101)
    assert known(ranks(loader(20.0), other, gone)).samples_per_s == 320


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
        found = known(session)
        assert found.flops_per_s is found.mfu_ratio is None


def test_a_share_of_the_dense_peak():
    found = known(traced(trace(HALF)))
    assert found.flops_per_s == pytest.approx(200 * TERA)
    assert found.mfu_ratio == pytest.approx(200 / 989.5)
    assert flops_rate_text(found) == "20 % MFU"
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
    assert flops_rate_text(known(traced(trace(HALF), gpus=0))) == "200 TFLOPS"


def test_each_type_has_its_own_peak():
    """Single precision rounds to TF32 as torch's settings say, of cuDNN and of the rest."""
    rows = (TracedFlops("product", "float32", 10 * TERA), TracedFlops("convolution", "float32", 10 * TERA))
    assert mfu(traced(trace(*rows), tf32=False, cudnn_tf32=True)) == pytest.approx(50 / 67 + 50 / 494.5)
    assert mfu(traced(trace(*rows), tf32=True, cudnn_tf32=True)) == pytest.approx(100 / 494.5)
    assert mfu(traced(trace(*rows), tf32=True)) is None
    assert mfu(traced(trace(*rows), name="Tesla V100-SXM2-16GB")) == pytest.approx(100 / 15.7)
