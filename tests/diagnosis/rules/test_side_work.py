"""Side work and evaluation on literal sessions."""

import pytest

from tests.diagnosis import gpu
from tests.diagnosis.cpu import SIDE
from tests.diagnosis.gpu import PID, SAVE, USUAL, findings, gpu_time
from tests.session.records import (
    by_rule,
    extend,
    frames,
    loop,
    native,
    one_process,
    rank,
    reason_by_rule,
    session_of,
    stacks,
    steps,
    thread,
    threads,
)
from tuimon.records import LineCalls, StepCalls

LINES = frames(
    ("train.py", 10, "main", "for x, y in loader:", True),
    ("train.py", 12, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("train.py", 13, "main", "opt.step()", True),
    ("/lib/site-packages/torch/optim/adam.py", 9, "step"),
    ("train.py", 15, "main", "validate(model)", True),
    ("train.py", 30, "validate", "right += model(x)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
    ("train.py", 11, "main", "loss = model(x)", True),
)
QUARTER = {"data": 5, "forward": 30, "backward": 35, "optimizer": 5, "other": 25}
TRAINING = (([1, 2], 30), ([3, 4], 10), ([8, 7], 20))


def trained(phases, *more, **of_steps):
    """A session of eight windows of ten steps each, of so many ms by phase, and of more records."""
    return one_process(LINES, loop(8, phases, **of_steps), *more)


def found(phases, *more, **of_steps):
    """What is found in it, by rule."""
    return by_rule(trained(phases, *more, **of_steps))


FRAMEWORK = frames(
    ("/home/me/fit.py", 31, "fit", "trainer.fit(model)", True),
    ("/v/lib/python3.11/site-packages/keras/src/trainer.py", 200, "fit"),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("/v/lib/python3.11/site-packages/keras/src/metrics.py", 344, "update_state"),
    ("/v/lib/python3.11/site-packages/keras/src/metrics.py", 350, "update_state"),
    ("/v/lib/python3.11/site-packages/keras/src/progress.py", 12, "update"),
    ("/v/lib/python3.11/site-packages/torch/_tensor.py", 9, "add_"),
    ("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
    ("/v/lib/python3.11/site-packages/keras/src/optimizers/adam.py", 80, "apply_gradients"),
    first=40,
)


@pytest.mark.parametrize(
    ("building", "said"), [(8, "outside the model, 15 % in one function"), (1, "outside the model")]
)
def test_a_function_that_takes_some_of_the_side_work_is_not_said_to_take_all_of_it(building, said):
    """As where models are averaged every so often, and built anew."""
    averaging = frames(
        ("fed.py", 40, "main", "states = average(states)", True),
        ("fed.py", 20, "average", "out[k] = sum(parts) / n", True),
        ("fed.py", 38, "main", "local = build(model)", True),
        ("fed.py", 12, "build", "return copy.deepcopy(model)", True),
        first=40,
    )
    samples = ([40, 41], 12), ([42, 43], building)
    finding = by_rule(session_of(averaging, loop(8, QUARTER), stacks(8, *TRAINING, *samples)))["side_work"]
    assert finding.headline == f"25 % of each step is side work {said}"
    assert (finding.where[0].function, finding.where[0].line) == ("average", 20)
    assert finding.estimated_speedup == pytest.approx(1 / (1 - 0.25 * 12 / (12 + building)), rel=0.01)


@pytest.mark.parametrize(("leaf", "work"), [(6, "validate() train.py:30"), (50, "writer.write() train.py:33")])
def test_work_on_the_output_of_a_model_that_is_not_trained_cannot_be_done_less_often(leaf, work):
    """Nor is the function made cheaper that runs the model."""
    own = frames(("train.py", 33, "main", "writer.write(out)", True), first=50)
    samples = stacks(8, ([8, 7], 40), ([leaf], 60))
    finding = found({"data": 5, "between": 95}, own, samples, backwards=0, updates=0)["side_work"]
    assert (finding.share_of_step, finding.severity) == (pytest.approx(0.57), "critical")
    assert [fix.action for fix in finding.fixes] == [
        f"make {work} cheaper, or do it in another process while the model runs"
    ]


def test_a_sleep_of_the_loops_own_sets_its_pace():
    wait = frames(("train.py", 40, "main", "time.sleep(0.05)  # be nice to others", True), first=20)
    phases = {"forward": 10, "backward": 20, "optimizer": 10, "other": 60}
    paced_by = found(phases, wait, stacks(8, *TRAINING, ([20], 90)))["side_work"]
    said = "60 % of each step is side work: the loop is paced by time.sleep() at main() train.py:40"
    assert paced_by.headline == said
    assert (paced_by.severity, paced_by.estimated_speedup) == ("info", None)


def test_side_work_of_a_library_is_named_with_the_users_line_and_gains_what_its_function_takes():
    """Nothing shows what the rest of ``trainer.fit(model)`` does beside training, such as ending an epoch's workers."""
    ends = frames(
        ("/v/lib/python3.11/site-packages/keras/src/epochs.py", 20, "next_epoch"),
        ("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 1654, "_shutdown_workers"),
        first=50,
    )
    samples = ([40, 41, 47], 30), ([40, 41, 42], 35), ([40, 44], 5), ([40, 45], 2), ([40, 50, 51], 13)
    phases = {"data": 5, "forward": 30, "backward": 35, "other": 30}
    finding = found(phases, FRAMEWORK, ends, stacks(8, *samples))["side_work"]
    assert finding.headline.endswith(", in update_state() metrics.py:350")
    assert [(place.file, place.line) for place in finding.where] == [("/home/me/fit.py", 31)]
    assert finding.evidence["hot_share"] == pytest.approx(5 / 20)
    assert finding.estimated_speedup == pytest.approx(1 / (1 - 0.3 * 5 / 20), rel=0.01)


def test_what_a_library_that_owns_the_loop_does_itself_at_each_update_is_no_side_work():
    """Its training function asks the schedule and clears gradients; its progress bar is side work."""
    own = frames(
        ("/v/lib/python3.11/site-packages/keras/src/trainer.py", 210, "fit"),
        ("/v/lib/python3.11/site-packages/torch/optim/lr_scheduler.py", 166, "wrapper"),
        first=50,
    )
    phases = {"data": 5, "forward": 35, "backward": 45, "other": 15}
    training = ([40, 41, 47], 35), ([40, 41, 42], 45)
    usual = found(phases, FRAMEWORK, own, stacks(8, *training, ([40, 50, 51], 12), ([40, 50], 3)))
    assert "side_work" not in usual
    slow = found(phases, FRAMEWORK, own, stacks(8, *training, ([40, 50, 51], 3), ([40, 45], 12)))
    assert slow["side_work"].severity == "warning"


@pytest.mark.parametrize(("seconds", "reported"), [(2, False), (3, False), (5, True)])
@pytest.mark.parametrize(("saving", "share"), [(15, 0.2), (60, 0.5)])
def test_attached_side_work_counts_once_some_seconds_were_sampled(saving, share, seconds, reported):
    """In the first two a line of the log may take a fifth, and one checkpoint half."""
    windows = [stacks(t, *TRAINING, ([5, 6, 7], saving)) for t in range(1, seconds + 1)]
    session = one_process(LINES, windows, markers=False)
    rows = session.over("recent").of(100).phases.rows
    assert next(row.share for row in rows if row.name == "other") == pytest.approx(share)
    assert ("side_work" in by_rule(session)) == reported


def test_side_work_of_which_samples_show_no_place_is_no_warning():
    assert found(QUARTER, stacks(8, *TRAINING))["side_work"].severity == "info"
    assert found(QUARTER)["side_work"].severity == "warning"  # nothing was sampled at all


def test_beside_no_training_there_is_no_side_work():
    """As where a loop only generates, and says itself when a step ends."""
    session = trained({"other": 10}, stacks(8, ([0, 1], 40)))
    assert "side_work" not in by_rule(session)
    reasons = reason_by_rule(session)
    assert "no batch, backward pass or update" in reasons["side_work"]


def test_side_work_in_the_model_is_reported_at_the_line_that_calls_it():
    lines = frames(
        ("train.py", 60, "check", "model(probe)", True),
        ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
        ("model.py", 7, "forward", "return self.conv(x)", True),
        ("train.py", 16, "main", "check(model)", True),
        first=30,
    )
    finding = found(QUARTER, lines, stacks(8, *TRAINING, ([33, 30, 31, 32], 25)))["side_work"]
    assert finding.where[0].line == 60
    assert finding.headline.endswith("side work that runs a model, such as evaluation")
    assert finding.action == "run check() train.py:60 less often, or on part of the data"


@pytest.mark.parametrize(
    ("works_on", "reported"), [("/lib/site-packages/torch/nn/modules/module.py", False), ("io.py", True)]
)
def test_a_little_evaluation_that_no_marker_separates_is_no_side_work(works_on, reported):
    lines = frames(
        ("train.py", 60, "after", "right += model(x)", True),
        (works_on, 99, "_call_impl"),
        ("train.py", 16, "main", "", True),
        first=30,
    )
    samples = stacks(8, ([1, 2], 300), ([3, 4], 100), ([8, 7], 500), ([32, 30, 31], 140))
    session = trained({"between": 60, "backward": 35, "optimizer": 5}, lines, samples)
    other = next(row for row in session.over("recent").of(100).phases.rows if row.name == "other")
    assert other.estimated and 0.10 < other.share < 0.20
    assert ("side_work" in by_rule(session)) == reported


@pytest.mark.parametrize(
    ("call", "stack"),
    [
        ("nn.utils.clip_grad_norm_(model.parameters(), 1.0)", [50]),
        ("scaler.unscale_(optimizer)", [50]),
        ("autojac.jac_to_grad(model.body.parameters(), aggregator)", [50]),
        ("all_reduce_gradients(model)", [50]),
        ("optimizer.first_step(zero_grad=True)", [50, 51]),
    ],
)
def test_what_changes_gradients_or_weights_in_every_update_is_no_side_work(call, stack):
    inner = ("sam.py", 9, "SAM.first_step", "p.add_(p.grad * scale)", True)
    clips = frames(("train.py", 49, "main", call, True), inner, first=50)
    assert "side_work" not in found(SIDE, clips, stacks(8, ([1, 2], 40), (stack, 25), ([5], 5)))
    finding = found(SIDE, clips, stacks(8, ([1, 2], 40), (stack, 10), ([5], 20)))["side_work"]
    assert finding.where[0].line == 15
    assert finding.estimated_speedup == pytest.approx(1 / (1 - 0.25 * 2 / 3), rel=0.01)


def test_what_a_library_does_around_the_optimizers_step_is_part_of_the_update():
    """Opacus' optimizer clips each sample's gradients, and adds noise, before it lets torch's optimizer step."""
    package = "/v/lib/python3.11/site-packages"
    more = frames(
        ("train.py", 49, "main", "optimizer.step()", True),
        (f"{package}/opacus/privacy.py", 500, "step"),
        (f"{package}/torch/optim/sgd.py", 80, "step"),
        (f"{package}/opacus/privacy.py", 400, "clip_and_accumulate"),
        first=50,
    )
    clipping = ([1, 2], 40), ([50, 51, 53], 25), ([5], 5)
    assert "side_work" not in found(SIDE, more, stacks(8, ([50, 51, 52], 5), *clipping))
    # without a sample of the step itself nothing shows that the line is the update's
    assert "side_work" in found(SIDE, more, stacks(8, *clipping))


def test_side_work_counts_as_far_as_the_gpu_idles():
    side = {"data": 5, "forward": 10, "backward": 20, "optimizer": 5, "other": 60}
    saving = ([SAVE], 60)
    leads = dict.fromkeys(("backward begin", "backward end", "optimizer end"), (9000.0, 0.0))

    def found(other):
        on_gpu = {"forward": (40, 0, 0), "backward": (50, 0, 0), "other": other}
        more = [r for t in range(5000, 5008) for r in (steps(t, side), gpu_time(t, on_gpu, leads))]
        return findings("gpu_bound", saving, *USUAL, more=more)

    assert "side_work" not in found((10, 0, 0))
    idles = found((60, 0, 60))["side_work"]
    assert idles.share_of_step == pytest.approx(0.4)
    assert idles.headline.startswith("the GPU waits up to 40 % of each step for side work")
    assert idles.estimated_speedup is None  # how much of that it idles is not certain
    assert idles.evidence["gpu_waits_at_most"] == pytest.approx(0.4)


def test_what_the_cpu_waits_for_is_not_judged_before_gpu_times_have_come():
    def early(first_s):
        session = gpu.session_of("gpu_bound", ([SAVE], 60), *USUAL)
        session.gpu_times.clear()
        session.now_s = session.step_stats[PID].first_step_s + first_s
        return by_rule(session)

    assert "side_work" not in early(3.0)
    assert "side_work" in early(20.0)


@pytest.mark.parametrize(("updates", "rule"), [(0, "optimizer_bound"), (10, "side_work")])
def test_an_update_that_the_program_writes_itself_is_the_update_unless_markers_show_an_optimizer(updates, rule):
    """No marker knows it: with the forward pass it lies between two backward passes."""
    own = frames(
        ("train.py", 14, "main", "update(params)", True),
        ("train.py", 20, "update", "m.mul_(b1).add_(p.grad)", True, "", "", (19, 21)),
        ("train.py", 21, "update", "p.sub_(lr * m / v.sqrt())", True, "", "", (19, 21)),
        first=30,
    )
    samples = ([8, 7], 20), ([1, 2], 30), ([30, 31], 30), ([30, 32], 20)
    session = trained({"between": 70, "backward": 30}, own, stacks(8, *samples), updates=updates)
    judged = by_rule(session)
    assert set(judged) == {rule}
    assert judged[rule].where[0].function == "update"
    shares = {row.name: row.share for row in session.over("recent").of(100).phases.rows}
    assert shares["optimizer" if rule == "optimizer_bound" else "other"] == pytest.approx(0.5, abs=0.01)
    assert shares["forward"] == pytest.approx(0.2, abs=0.01)


def beside_training(lines, *samples):
    """The finding about a quarter of each step outside the phases, of which these samples were taken."""
    beside = [each for each in samples if each[1]]
    return found(QUARTER, lines, stacks(8, *TRAINING, *beside))["side_work"]


POSTS = (
    ("train.py", 20, "main", "tracker.post(loss)", True),
    ("train.py", 50, "post", "session.post(url, json=values)", True),
    ("/lib/site-packages/urllib3/connectionpool.py", 790, "urlopen"),
    ("/usr/lib/python3.11/socket.py", 706, "readinto"),
)
SAVES = (
    ("train.py", 20, "main", "save(model)", True),
    ("train.py", 50, "save", "torch.save(model.state_dict(), path)", True),
    ("/lib/site-packages/torch/serialization.py", 943, "save"),
)


@pytest.mark.parametrize(
    ("places", "cause", "kind", "action"),
    [
        (POSTS, "network", "calls over the network", "send the requests of post() train.py:50"),
        (SAVES, "checkpoint", "saving checkpoints", "save less often at save() train.py"),
    ],
)
def test_calls_over_the_network_and_checkpoints_are_told_from_other_side_work(places, cause, kind, action):
    """By torch's own functions below the line, of which one that gathers the weights is part."""
    lines = frames(
        *places,
        ("train.py", 21, "main", "log(loss)", True),
        ("train.py", 60, "log", "file.write(line)", True),
        ("/lib/site-packages/torch/serialization.py", 1500, "load"),
        ("/lib/site-packages/torch/nn/modules/module.py", 2200, "state_dict"),
        first=40,
    )
    log = 40 + len(places)
    for known, logging, expected, said in (
        (20, 0, cause, kind),
        (12, 8, cause, f"side work outside the model, 15 % in {kind}"),
        (
            8,
            12,
            None,
            "side work outside the model, 15 % in one function, above all in whole files of tensors or arrays",
        ),
    ):
        gathering = ([*range(40, log - 1), log + 3], 2) if cause == "checkpoint" else ([*range(40, log)], 2)
        finding = beside_training(lines, ([*range(40, log)], known - 2), gathering, ([log, log + 1, log + 2], logging))
        assert (finding.cause, finding.headline) == (expected, f"25 % of each step is {said}")
        assert finding.fixes[0].action.startswith(action) == (expected is not None)


def test_bursts_of_writing_are_no_checkpoints_where_hardly_a_sample_saves():
    """A cache is written twice, and one sample is in a save between: which of them it was is not known."""
    session = one_process(LINES, steps(1, {"forward": 50, "backward": 50}), stacks(1, *TRAINING))
    session.add(frames(("/lib/site-packages/torch/serialization.py", 943, "save"), first=40))
    for t, mib in enumerate((0, 500, 0, 500, 0), 2):
        extend(session, threads(t, written_bytes=mib << 20), stacks(t, ([40], int(t == 3)), *TRAINING))
    assert session.over("recent").of(100).checkpoints is None
    session.add(stacks(7.0, ([40], 1), *TRAINING))
    assert session.over("recent").of(100).checkpoints.number == 2


def test_half_as_many_checkpoints_gain_less():
    less, half = beside_training(frames(*SAVES, first=40), ([40, 41, 42], 20)).fixes
    assert half.action == "save half as often at save() train.py:50"
    assert 1.0 < half.estimated_speedup < less.estimated_speedup


@pytest.mark.parametrize(("library", "compresses"), [("zlib", True), ("torch", False)])
def test_checkpoints_that_mostly_compress_are_to_be_written_without(library, compresses):
    saves = frames(*SAVES, first=40), stacks(8, *TRAINING, ([40, 41, 42], 20))
    code = native(8, (100, (library, "other", 50), ("interpreter", "other", 10)))
    work = found(QUARTER, *saves, code, thread(8, 0.9))["side_work"]
    assert ("write without compression" in work.action) is compresses
    assert work.headline.endswith("saving checkpoints, above all in compressing data" * compresses or "checkpoints")


@pytest.mark.parametrize(
    ("saved", "views"), [('{"feats": feats}', True), ("model.state_dict()", False), ("checkpoint", False)]
)
def test_of_saved_tensors_views_are_to_be_cloned(saved, views):
    line = ("train.py", 50, "save", f"torch.save({saved}, path)", True)
    work = beside_training(frames(SAVES[0], line, SAVES[2], first=40), ([40, 41, 42], 20))
    assert any("clone()" in fix.action for fix in work.fixes) is views


def test_side_work_that_reads_values_in_a_loop_says_how_often():
    logs = frames(("train.py", 21, "log", "total += loss.item()", True), first=60)
    samples = logs, stacks(9, *TRAINING, ([60], 30))
    assert "item_calls_per_step" not in found(QUARTER, *samples)["side_work"].evidence
    counted = StepCalls(t=9, pid=100, lines=[LineCalls("item", "train.py", 21, 40)])
    assert found(QUARTER, *samples, counted)["side_work"].evidence["item_calls_per_step"] == 40


@pytest.mark.parametrize(("other", "alone"), [({"other": 60}, True), ({"eval": 60}, False)])
def test_ranks_that_wait_for_one_that_evaluates_are_to_take_a_part_each(other, alone):
    training = {"data": 5, "forward": 15, "backward": 15, "optimizer": 5}
    session = session_of(LINES)
    for pid, more in ((100, {"eval": 60}), (101, other)):
        extend(session, rank(pid - 100), loop(8, {**training, **more}, pid=pid), thread(8, 0.9, 0.0, pid=pid))
        extend(session, stacks(8, *TRAINING, ([5, 6, 7], 60), pid=pid))
    finding = by_rule(session)["side_work"]
    assert finding.cause == "evaluation"
    assert any("let all ranks evaluate" in fix.action for fix in finding.fixes) is alone


def test_answers_that_a_pass_awaits_are_told_and_no_gain():
    awaits = frames(
        ("judge.py", 48, "scores", "return self.loop.run_until_complete(self.each(texts))", True),
        ("/v/lib/python3.11/asyncio/base_events.py", 640, "run_until_complete"),
        ("/v/lib/python3.11/selectors.py", 468, "select"),
        first=40,
    )
    phases = {"forward": 80, "backward": 15, "optimizer": 5}
    samples = stacks(8, ([8, 7, 40, 41, 42], 80), ([1, 2], 15), ([3, 4], 5))
    finding = found(phases, awaits, samples, thread(8, 0.2, 0.0))["side_work"]
    assert "the training thread waits for the next event in forward for at least" in finding.headline
    assert (finding.severity, finding.where[0].line, finding.estimated_speedup) == ("info", 48, None)
    assert "asyncio.gather()" in finding.action
