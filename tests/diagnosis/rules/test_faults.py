"""What no rule takes is still told: waits inside the passes, and what is known of the functions in them."""

import pytest

from tests.diagnosis.cpu import BACKWARD, FORWARD, HEALTHY, SIDE, sends_views, training, workers
from tests.session.records import frames, stacks, thread, threads
from tuimon.diagnosis.judging import diagnose_run
from tuimon.records import Frame, MachineMemory, SettingLine

TORCH = "/lib/site-packages/torch"
REGISTERS = SettingLine("hook", 50, "hooks", "return graph.saved_tensors_hooks(self.pack, self.unpack)")
LINES = frames(
    ("model.py", 12, "forward", "self.lock.acquire()", True),  # 20
    ("model.py", 13, "forward", "time.sleep(0.02)", True),
    ("model.py", 14, "forward", "return x @ self.weight", True),
    ("train.py", 64, "main", "torch.save(model, path)", True),
    (f"{TORCH}/nn/modules/module.py", 1850, "inner", "result = hook(self, args, result)"),
    ("probes.py", 9, "summarise", "stats[name] = output.std()", True),  # 25
    (f"{TORCH}/nn/functional.py", 6500, "multi_head_attention_forward", "attn_output_weights = softmax(scores)"),
    (f"{TORCH}/nn/functional.py", 6520, "multi_head_attention_forward"),
    (f"{TORCH}/nn/functional.py", 2100, "softmax"),
    ("train.py", 40, "main", "accuracy = (model(x).argmax(1) == y).mean()", True),
    ("model.py", 21, "forward", "x = one_layer(F.one_hot(items, 9).float())", True),  # 30
    ("graph.py", 22, "normalised", "adjacency = adjacency.coalesce()", True),
    ("model.py", 23, "forward", "h, c = self.cell(x[:, t], (h, c))", True),
    ("model.py", 25, "forward", "return (error + F.softplus(error)).mean()", True),
    ("model.py", 26, "forward", "return F.conv2d(x, self.kernel)", True),
    ("/lib/site-packages/torch_geometric/utils/_coalesce.py", 90, "coalesce"),  # 35
    ("train.py", 63, "main", "nn.utils.clip_grad_norm_(group['params'], 1.0)", True),
    ("model.py", 28, "forward", "factor = torch.linalg.cholesky(kernel)", True),
    (f"{TORCH}/distributions/laplace.py", 194, "__init__"),
    ("train.py", 65, "main", "optimizer.step()", True),
    (f"{TORCH}/optim/optimizer.py", 500, "wrapper"),  # 40
    ("muon.py", 34, "orthogonalize", "poly = b * gram + c * gram @ gram", True),
    ("muon.py", 45, "accumulate", "state.mul_(beta).add_(grad)", True),
    (f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward"),
    ("offload.py", 44, "unpack", "return torch.load(packed.name)", True, *[""] * 2, None, None, (REGISTERS,)),
    (f"{TORCH}/serialization.py", 1601, "load"),  # 45
    ("offload.py", 38, "pack", "torch.save(tensor, spill.name)", True),
    (f"{TORCH}/serialization.py", 1003, "save"),
    ("hooks.py", 9, "clip", "return gradient / np.percentile(gradient, 99)", True),
    (f"{TORCH}/autograd/function.py", 325, "apply"),
    ("spikes.py", 31, "backward", "return sum(g * slope(x) for x in ctx.saved_tensors)", True),  # 50
    ("implicit.py", 21, "solve", "g = torch.autograd.grad(f0, z0, g, retain_graph=True)[0] + gradient", True),
    (f"{TORCH}/autograd/__init__.py", 594, "grad"),
    Frame("model.py", 45, "follow", "level = keep * level + (1 - keep) * frame", True, loop=True),
    Frame("model.py", 46, "follow", "level = keep * level + (1 - keep) * frame", True),
    Frame("model.py", 47, "follow", "level = scale * frame + shift", True, loop=True),  # 55
    (f"{TORCH}/nn/modules/module.py", 1786, "_call_impl"),
    (f"{TORCH}_geometric/nn/conv/sg_conv.py", 95, "forward", "x = self.propagate(edges, x=x)"),
    first=20,
)
LOCK, SLEEP, COMPUTES, SAVES = [*FORWARD, 20], [*FORWARD, 21], [*FORWARD, 22], [23]


def judged(*counted, phases=HEALTHY, cpu=0.99, delay=None, busy_cores=None, **of_steps):
    """By rule; ``cpu``, ``delay``: of the training thread; ``busy_cores``: used by all programs."""
    windows = [stacks(t, *counted) for t in range(1, 13)]
    used = MachineMemory(t=12.0, pid=0, window_s=1.0, busy_cores=busy_cores)
    findings = diagnose_run(training(phases, LINES, *windows, thread(12, cpu, delay), used, **of_steps), [])
    return {finding.rule: finding for finding in findings}


def found(*counted, phases=HEALTHY):
    """The same beside a usual backward pass, of a thread that waits for a part of the time."""
    return judged(*counted, (BACKWARD, 45), phases=phases, cpu=0.7)


@pytest.mark.parametrize(
    ("wait", "line", "what", "action"),
    [
        (LOCK, 12, "waits for a lock in forward", "see who keeps forward() model.py:12 waiting"),
        (SLEEP, 13, "sleeps in forward", "remove or shorten the sleep at forward() model.py:13"),
    ],
)
def test_a_wait_in_the_model_is_told_and_the_loop_is_not_in_order(wait, line, what, action):
    by_rule = found((wait, 25), (COMPUTES, 15))
    told = by_rule["side_work"]
    assert (told.severity, told.estimated_speedup, told.where[0].line) == ("info", None, line)
    assert what in told.headline and action in told.action
    assert told.share_of_step == pytest.approx(0.25, abs=0.05)
    assert by_rule["compute_bound_cpu"].action.startswith("leave the model as it is")


WRITER, BEAT = (110, "writer", [23], 20), (111, "heartbeat", [21], 40)


@pytest.mark.parametrize(
    ("beside", "idle", "named"),
    [
        ([WRITER], 20, True),  # it saves for half of the time
        ([WRITER, BEAT], 20, True),
        ([WRITER], 180, False),  # for a tenth, and the training waits for a quarter
        ([BEAT], 0, False),
        ([WRITER, (112, "logger", [3], 20)], 0, False),  # either may hold the lock
    ],
)
def test_the_one_thread_that_does_something_while_the_training_waits_for_a_lock_is_named(beside, idle, named):
    waits = (110, "writer", [20], idle)
    seen = [stacks(t, (LOCK, 25), (COMPUTES, 15), (BACKWARD, 45), beside=[*beside, waits]) for t in range(1, 13)]
    rows = [(100, "python", 0.7, "running"), *((tid, name, 0.2, "running") for tid, name, *_ in beside)]
    findings = diagnose_run(training(HEALTHY, LINES, *seen, threads(12, *rows)), [])
    (action,) = (each.action for each in findings if each.rule == "side_work")
    assert action.endswith("; meanwhile thread writer is at main() train.py:64") is named
    assert ("meanwhile" in action) is named


def test_a_model_that_computes_is_in_order():
    by_rule = found((LOCK, 2), (COMPUTES, 38))
    assert "side_work" not in by_rule and "nothing holds" in by_rule["compute_bound_cpu"].action


@pytest.mark.parametrize(("inside", "told"), [([33], True), ([22], False)])
def test_beside_a_fault_that_leaves_most_of_the_step_only_what_is_known_of_the_passes_is_told(inside, told):
    by_rule = found(([*FORWARD, *inside], 30), (SAVES, 25), phases=SIDE)
    assert by_rule["side_work"].severity == "warning"
    assert ("compute_bound_cpu" in by_rule) is told
    assert not told or "30 % in forward() model.py:25" in by_rule["compute_bound_cpu"].headline


def test_beside_what_is_worth_a_change_it_is_left_out():
    by_rule = found((LOCK, 15), (COMPUTES, 15), (SAVES, 25), phases=SIDE)
    assert by_rule["side_work"].where[0].line == 64


@pytest.mark.parametrize(
    ("inside", "what", "action"),
    [
        ([24, 25], "15 % in hooks of modules", "handle.remove()"),
        ([26, 28], "32 % in attention that returns its weights, with its part of backward", "need_weights=False"),
        ([27], None, "nothing holds"),
        ([30, 22], None, "nothing holds"),
        ([31], "15 % in the construction of sparse tensors", "build sparse tensors once"),
    ],
)
def test_what_is_known_of_a_function_that_takes_much_of_a_pass_is_told(inside, what, action):
    told = found(([*FORWARD, 22, *inside], 15), (COMPUTES, 25))["compute_bound_cpu"]
    assert (what is None) != (what is not None and what in told.headline)
    assert action in told.action and "use a GPU" in told.fixes[-1].action
    assert ("nothing holds" in told.action) == (what is None) == (told.where[0].file == "train.py")


@pytest.mark.parametrize(("inside", "told"), [([53], True), ([54], False), ([55], False), ([53, 56], False)])
def test_a_state_that_decays_in_a_loop_of_the_model_is_told_with_its_part_of_backward(inside, told):
    found_here = found(([*FORWARD, *inside], 20), (COMPUTES, 20))["compute_bound_cpu"]
    assert ("in a recurrence, computed step by step" in found_here.headline) is told
    assert ("set_flush_denormal" in found_here.action) is told
    assert not told or found_here.headline.endswith(
        "43 % in a recurrence, computed step by step, with its part of backward"
    )


@pytest.mark.parametrize(
    ("phases", "is_certain"),
    [
        ({"forward": 80, "backward": 14, "optimizer": 6}, True),
        ({"forward": 48, "backward": 46, "optimizer": 6}, False),  # a gradient goes through the layer
        ({"data": 10, "forward": 74, "backward": 10, "optimizer": 6}, False),  # another graph in each step
    ],
)
def test_what_a_layer_computes_again_gains_surely_only_if_its_input_stays_the_same(phases, is_certain):
    told = found(([*FORWARD, 56, 57], 30), (COMPUTES, 10), phases=phases)["compute_bound_cpu"]
    assert "in features that SGConv propagates again" in told.headline and "cached=True" in told.action
    assert (told.best.least is not None and told.severity == "critical") is is_certain


@pytest.mark.parametrize(
    ("source", "near", "loop", "told"),
    [
        ("logits = model(ids)[:, -1]", "", True, True),
        ("logits = model(ids).logits[:, -1, :]", "", True, True),
        ("score = model(ids)", "ids = torch.cat((ids, token), dim=1)", True, True),
        ("score = model(ids)", "logits = logits[:, -1, :] / 0.8", True, True),
        ("score = model(ids)", "ids = torch.cat((left, right), dim=1)", True, False),
        ("logits = model(ids)[:, -1]", "", False, False),
    ],
)
def test_a_model_that_runs_over_a_whole_sequence_for_each_token_is_told(source, near, loop, told):
    drawn = frames(
        ("draw.py", 8, "main", "tunes = draw(model)", True),
        ("draw.py", 30, "draw", source, True, *[""] * 2, None, None, (), loop, (), False, int(loop)),
        ("draw.py", 33, "draw", near, True),
        first=60,
    )
    seen = [stacks(t, ([60, 61, 9, 22], 30), ([60, 62], 2), (BACKWARD, 8)) for t in range(1, 13)]
    phases = {"data": 1, "forward": 80, "backward": 15, "optimizer": 3, "other": 1}
    findings = diagnose_run(training(phases, LINES, drawn, *seen, thread(12, 0.99)), [])
    (found,) = (each for each in findings if each.rule == "compute_bound_cpu")
    assert ("whole sequences for each token" in found.headline) is told
    assert not told or (found.where[0].line == 30 and "past_key_values" in found.action)


def test_the_line_that_shows_what_is_known_is_named_and_none_that_it_calls():
    told = found(([*FORWARD, 22, 32, 22], 15), (COMPUTES, 25))["compute_bound_cpu"]
    assert (told.where[0].file, told.where[0].line) == ("model.py", 23)


def test_a_function_that_takes_most_of_a_pass_and_a_module_that_is_run_at_two_lines_are_named():
    twice = {**HEALTHY, "forward": 60, "backward": 25}
    samples = ([*FORWARD, 22, 28], 30), ([29, FORWARD[1], 22, 28], 15), (COMPUTES, 5)
    told = found(*samples, phases=twice)["compute_bound_cpu"]
    assert "mostly forward, run at train.py:40 and train.py:46, 90 % of it in softmax()" in told.headline
    assert "of torch/nn/functional.py" in told.headline


@pytest.mark.parametrize(
    ("inside", "samples", "line"),
    [
        ([33], 21, "21 % in forward() model.py:25"),
        ([33, 35], 21, "21 % in forward() model.py:25"),  # in another package
        ([33, 38], 21, "21 % in forward() model.py:25"),  # in torch, which composes operations there
        ([33], 19, None),  # less than half of forward
        ([33, 28], 40, None),  # a call of torch's that has frames of its own
        ([34], 40, None),  # a product
        ([20], 21, None),  # a wait
    ],
)
def test_a_line_whose_own_operations_are_most_of_forward_is_told_and_is_not_in_order(inside, samples, line):
    told = found(([*FORWARD, *inside], samples), (COMPUTES, 40 - samples))["compute_bound_cpu"]
    assert (line is not None) == ("model.py" in told.headline) and (line or "") in told.headline
    asked = "whether forward() model.py:25 has to be computed in each step" in told.fixes[0].action
    assert asked == (line is not None)


UNPACK, PACK = [*BACKWARD, 43, 44, 45], [*COMPUTES, 46, 47]


def test_hooks_of_saved_tensors_are_named_whatever_they_do_with_files():
    by_rule = found((COMPUTES, 20), (PACK, 20), (UNPACK, 15))
    told = by_rule["compute_bound_cpu"]
    assert "31 % in hooks that pack and unpack saved tensors" in told.headline
    assert "saved_tensors_hooks() (registered at offload.py:50)" in told.action
    assert told.best.most == pytest.approx(1 / (1 - 0.31), abs=0.02)
    assert by_rule["side_work"].action == told.action  # the wait at torch.save() or torch.load()


def test_hooks_of_gradients_are_named():
    told = found((COMPUTES, 5), ([*BACKWARD, 43, 48], 15))["compute_bound_cpu"]
    assert (
        "in hooks that backward calls" in told.headline
        and "times as long" not in told.headline
        and told.where[0].file == "hooks.py"
    )
    assert told.action.startswith("remove hooks that training does not need")


def test_a_hook_that_takes_gradients_itself_is_the_models_own():
    """It solves for the gradient of a fixed point, as implicit layers do."""
    told = found((COMPUTES, 40), ([*BACKWARD, 43, 51, 52, 43], 15))["compute_bound_cpu"]
    assert "hooks" not in told.headline


@pytest.mark.parametrize(
    ("inside", "line"), [([43, 49, 50], "backward() spikes.py:31"), ([], None), ([43, 48], "hooks")]
)
def test_a_long_backward_that_calls_the_programs_own_code_is_about_that_code(inside, line):
    phases = {**HEALTHY, "forward": 10, "backward": 75}
    told = judged((COMPUTES, 10), ([*BACKWARD, *inside], 75), phases=phases)["compute_bound_cpu"]
    assert ("backward takes 8 times as long as forward" in told.headline) is (line != "hooks")
    assert (f"see whether {line} can do less" in told.action) is (line is not None and line != "hooks")


@pytest.mark.parametrize(("forward", "backwards", "told"), [(10, 10, True), (25, 10, False), (10, 60, False)])
def test_a_backward_far_longer_than_its_forward_is_told(forward, backwards, told):
    phases = {**HEALTHY, "forward": forward, "backward": 85 - forward}
    samples = (COMPUTES, forward), (BACKWARD, 85 - forward)
    found = judged(*samples, phases=phases, backwards=backwards)["compute_bound_cpu"]
    assert ("backward takes 8 times as long as forward" in found.headline) is told
    assert ("results kept from earlier steps" in found.action) is told


def test_the_backward_of_decompositions_is_long_and_in_order():
    phases = {**HEALTHY, "forward": 10, "backward": 75}
    (found,) = judged(([*FORWARD, 37], 3), (COMPUTES, 7), (BACKWARD, 75), phases=phases).values()
    assert found.headline.endswith("mostly backward, with the gradients of decompositions of matrices")
    assert "nothing holds it back" in found.action


def test_the_line_of_work_at_each_update_is_told():
    found = judged((COMPUTES, 30), (BACKWARD, 35), ([36], 25), phases=SIDE)["compute_bound_cpu"]
    assert "25 % in work outside the passes" in found.headline and found.where[0].line == 63
    assert found.action == "see whether nn.utils.clip_grad_norm_() train.py:63 can do less, or all at once"


UPDATES = {"data": 1, "forward": 10, "backward": 15, "optimizer": 72, "other": 2}


@pytest.mark.parametrize(("line", "told"), [(41, True), (42, False)])
def test_an_update_that_mostly_multiplies_matrices_is_told(line, told):
    by_rule = judged((COMPUTES, 10), (BACKWARD, 15), ([39, 40, line], 72), phases=UPDATES)
    found = by_rule["compute_bound_cpu" if told else "optimizer_bound"]
    assert ("72 % in the update, above all in products of matrices" in found.headline) is told
    assert (found.where[0].line == 34) is told


@pytest.mark.parametrize(
    ("delay", "sent", "told"), [(0.3, {}, True), (0.0, {}, False), (0.3, {"sending_ms": 5.0}, False)]
)
def test_views_that_workers_send_whole_while_the_training_waits_for_a_core_are_told(delay, sent, told):
    windows = [stacks(t, (COMPUTES, 40), (BACKWARD, 45)) for t in range(1, 13)]
    busy, sender = thread(12, 0.99 - delay, delay), workers(2, 0.5, ([0], 40))
    records = training(HEALTHY, LINES, *windows, busy, *sender, sends_views(**sent))
    found = next(each for each in diagnose_run(records, []) if each.rule == "compute_bound_cpu")
    assert ("of views into 96 MiB" in found.headline) is told
    assert (found.where[0].line == 31) is told


@pytest.mark.parametrize(
    ("update", "fault", "action"),
    [
        (
            [([39, 40, 41], 72)],
            "41 % in the update, above all in products of matrices; ",
            "multiply on the shorter side",
        ),
        ([], "", "leave the model as it is: it spends its time computing"),
    ],
)
def test_beside_programs_that_take_the_cores_the_faults_are_those_of_a_machine_without_them(update, fault, action):
    """Others have a core for 42 % of the time; 72 % of the training's own time is 41 % of a step."""
    phases, beside = UPDATES if update else HEALTHY, {"cpu": 0.58, "delay": 0.42, "busy_cores": 2.0}
    by_rule = judged((COMPUTES, 10), (BACKWARD, 15), *update, phases=phases, **beside)
    assert by_rule["neighbour"].share_of_step == pytest.approx(0.42, abs=0.01)
    found = by_rule["compute_bound_cpu"]
    assert found.headline.endswith(f"{fault}42 % in waits for a core that others have")
    assert found.action.startswith(action)
