"""Data that comes from an environment or from the model itself, on literal sessions."""

import pytest

from tests.session.records import by_rule, frames, header, loop, process, session_of, stacks, thread, threads

PACKAGES = "/lib/site-packages"
LOOP = frames(
    ("train.py", 42, "main", "states = rollout(env, policy, 16)", True),  # 0
    ("train.py", 25, "rollout", "state, reward, done = world.step(action)", True),
    ("world.py", 7, "step", "self.angle = simulate(action)", True),
    ("train.py", 23, "rollout", "action = policy(torch.from_numpy(state))", True),
    (f"{PACKAGES}/torch/nn/modules/module.py", 1700, "_call_impl"),
    ("train.py", 45, "main", "loss = cost(policy(states))", True),  # 5
    ("train.py", 46, "main", "loss.backward()", True),
    (f"{PACKAGES}/torch/autograd/__init__.py", 9, "backward"),
    ("train.py", 47, "main", "optimizer.step()", True),
    (f"{PACKAGES}/torch/optim/adam.py", 9, "step"),
    ("train.py", 43, "main", "tokens = model.generate(prompts)", True),  # 10
    (f"{PACKAGES}/transformers/generation/utils.py", 2000, "generate"),
    ("train.py", 48, "main", "print(model.generate(prompts))", True),
    ("train.py", 30, "main", "state, reward, done, cut, _ = env.step(action)", True),
    (f"{PACKAGES}/gymnasium/core.py", 327, "step"),
    ("train.py", 28, "main", "action = policy(state).argmax()", True),  # 15
    ("train.py", 49, "main", "loss, norm = meter.step(loss)", True),
    ("meter.py", 5, "step", "self.total += loss", True),
    ("train.py", 24, "rollout", "states.append(state)", True),
    ("train.py", 50, "main", "evaluate(env, policy)", True),
    ("train.py", 60, "evaluate", "state, reward, done, cut, _ = env.step(act(state))", True),  # 20
    ("train.py", 26, "rollout", "action = act(policy, state)", True),
    ("train.py", 12, "act", "chances = policy(state)", True),
    ("train.py", 13, "act", "return Categorical(chances).sample()", True),
    ("train.py", 32, "main", "batch = buffer.sample(64)", True),
    ("buffer.py", 9, "sample", "return torch.tensor([item.state for item in items])", True),  # 25
    ("train.py", 33, "main", "gains = returns(rewards, values)", True),
    ("train.py", 71, "returns", "total = reward.item() + 0.99 * total", True),
    ("train.py", 27, "rollout", "past = buffer.sample(8)", True),
    (f"{PACKAGES}/stable_baselines3/common/off_policy_algorithm.py", 577, "collect_rollouts"),
    ("callback.py", 5, "_on_step", "self.rows.append(stats(self.locals))", True),  # 30
    (f"{PACKAGES}/stable_baselines3/common/callbacks.py", 114, "on_step"),
    (f"{PACKAGES}/stable_baselines3/common/callbacks.py", 310, "_on_step", "self.model.save_replay_buffer(path)"),
    (f"{PACKAGES}/stable_baselines3/common/save_util.py", 354, "save_to_pkl"),
    ("train.py", 76, "main", "model.learn(10**9, callback=saver)", True),
    (f"{PACKAGES}/stable_baselines3/sac/sac.py", 316, "learn"),  # 35
    (f"{PACKAGES}/stable_baselines3/sac/sac.py", 258, "train"),
    (f"{PACKAGES}/stable_baselines3/sac/sac.py", 276, "train"),
    (f"{PACKAGES}/stable_baselines3/sac/sac.py", 277, "train"),
    (f"{PACKAGES}/transformers/integrations/sdpa_attention.py", 182, "sdpa_attention_forward"),
    (f"{PACKAGES}/transformers/cache_utils.py", 120, "update"),  # 40
)
TRAINING = (([5, 4], 20), ([6, 7], 20), ([8, 9], 5))
ENVIRONMENT = ([0, 1, 2], 60)
POLICY = ([0, 3, 4], 20)
COPY = ([0, 3], 5)


PIPE = frames(
    ("/lib/python3.11/multiprocessing/connection.py", 395, "_recv"),
    ("envs.py", 30, "step_wait", "results = [pipe.recv() for pipe in self.pipes]", True),
    ("envs.py", 9, "serve", "state, reward, done = world.step(action)", True),
    ("world.py", 5, "collide", "if abs(x - y) < 0.01:", True),
    ("world.py", 6, "tick", "time.sleep(0.02)", True),
    ("envs.py", 33, "step", "return self.step_wait()", True),
    ("envs.py", 8, "serve", "action = pipe.recv()", True),
    ("/lib/python3.11/multiprocessing/connection.py", 384, "_send"),
    ("/lib/python3.11/multiprocessing/reduction.py", 51, "dumps"),
    first=50,
)


def found(*counted, cpu_count=2, training=TRAINING, beside=()):
    made = loop(12, {"between": 75, "backward": 20, "optimizer": 5}, *training, *counted)
    return by_rule(session_of(header(cpu_count=cpu_count), process(), LOOP, PIPE, made, beside))


def processes_of_environments(number, cpu_ratio, *making):
    """Records of forked processes that wait for a message, unless they are ``making`` something."""
    for pid in range(201, 201 + number):
        yield process(pid, "child", ppid=100)
        yield thread(12, cpu_ratio, pid=pid, state="sleeping")
        yield stacks(12, ([56, 50], 20), *making, pid=pid)


def test_a_function_that_steps_an_environment_makes_the_data_with_all_that_it_does():
    bound = found(ENVIRONMENT, POLICY, COPY, ([0, 18], 15))["input_bound"]
    assert (bound.cause, bound.where[0].file, bound.where[0].line) == ("rollout", "world.py", 7)
    assert "the loop steps the environment" in bound.headline
    shares = [bound.evidence[f"{part}_share"] for part in ("environment", "policy", "copy")]
    assert shares == pytest.approx([0.60, 0.35, 0.05])  # what it makes of the answer is the policy's
    assert bound.share_of_step == pytest.approx(0.75 * 100 / 120, abs=0.01)  # forward has the other 20 samples


@pytest.mark.parametrize(("inside", "policy"), [([29], 0.95), ([29, 30], 0.05)], ids=["collector", "callback"])
def test_a_librarys_own_work_around_the_policy_is_the_policys_but_no_callback_of_the_users(inside, policy):
    bound = found(([0, 29, 14], 5), ([0, 29, 4], 5), ([0, *inside], 90))["input_bound"]
    assert (bound.cause, bound.evidence["policy_share"]) == ("rollout", pytest.approx(policy))


def test_what_a_collector_calls_back_is_side_work_of_its_own():
    training = ([34, 35, 36, 4], 20), ([34, 35, 37, 7], 20), ([34, 35, 38, 9], 5)
    saving = ([34, 35, 29, 31, 32, 33], 60), ([34, 35, 29, 31, 32], 8)
    findings = found(([34, 35, 29, 14], 1), ([34, 35, 29, 4], 1), *saving, training=training)
    assert "input_bound" not in findings
    assert findings["side_work"].headline.endswith("in _on_step() callbacks.py:310")
    assert findings["side_work"].action == "save less often: raise save_freq of CheckpointCallback"


def test_a_loss_of_what_the_rollout_has_computed_leaves_the_gain_of_more_environments_unknown():
    training = (([26, 27], 20), ([6, 7], 20), ([8, 9], 5))
    bound = found(([0, 1, 2], 10), ([0, 21, 22, 4], 90), training=training)["input_bound"]
    assert (bound.cause, bound.severity, bound.estimated_speedup) == ("rollout", "info", None)


def test_updates_too_short_to_be_sampled_leave_the_environment_known():
    bound = found(ENVIRONMENT, POLICY, training=())["input_bound"]
    assert (bound.cause, bound.where[0].line) == ("rollout", 7)


def test_more_environments_help_where_there_are_cores_for_them():
    few, many = found(ENVIRONMENT)["input_bound"], found(ENVIRONMENT, cpu_count=8)["input_bound"]
    assert not any("environments at once" in fix.action for fix in few.fixes)
    assert any("step 7 environments at once" in fix.action for fix in many.fixes)
    held = found(ENVIRONMENT, cpu_count=8, beside=[threads(12, (100, "python", 0.5, "running", 0.4))])["input_bound"]
    assert not any("environments at once" in fix.action for fix in held.fixes)  # others have the cores


def test_the_option_for_more_environments_is_the_librarys():
    of_library = found(([0, 29, 14], 60), cpu_count=8)["input_bound"]
    assert any("make_vec_env() with n_envs" in fix.action for fix in of_library.fixes)


def test_what_environments_in_processes_of_their_own_cost_has_a_gain():
    bound = found(ENVIRONMENT, beside=processes_of_environments(4, 0.03))["input_bound"]
    assert bound.cause == "rollout"
    data = bound.share_of_step
    (here,) = bound.fixes  # messages take the time, and no line of an environment
    assert "in the training process" in here.action
    assert here.estimated_speedup == pytest.approx(1 / (1 - data + 4 * 0.03), rel=0.05)


def test_few_samples_of_one_process_are_not_taken_for_all():
    seldom = [*processes_of_environments(4, 0.3), stacks(11, ([52, 2, 53], 5), pid=201)]
    (here,) = found(ENVIRONMENT, beside=seldom)["input_bound"].fixes
    assert "in the training process" in here.action


def test_environments_that_sleep_would_sleep_as_long_in_this_process():
    bound = found(ENVIRONMENT, beside=processes_of_environments(4, 0.03, ([52, 2, 54], 60)))["input_bound"]
    assert not any("in the training process" in fix.action for fix in bound.fixes)


@pytest.mark.parametrize(
    ("line", "severity", "said"),
    [(53, "critical", "waits for environments in 4 processes"), (54, "info", "paced by time.sleep() at tick()")],
)
def test_environments_in_processes_are_told_by_what_these_do(line, severity, said):
    making = processes_of_environments(4, 0.5, ([52, 2, line], 60))
    bound = found(([0, 1, 55, 51], 80), beside=making)["input_bound"]
    assert said in bound.headline and (bound.severity, bound.where[0].line) == (severity, line - 48)
    assert severity == "info" or bound.action == "make collide() world.py:5 cheaper (vectorise or cache it)"


def test_what_processes_of_environments_use_to_send_messages_they_do_not_use_in_this_process():
    making = processes_of_environments(4, 0.8, ([52, 57], 60), ([52, 58], 20), ([52, 2, 53], 5))
    bound = found(([0, 1, 55, 51], 80), beside=making)["input_bound"]
    assert "waits for messages of environments in 4 processes, which compute 5 % of the time" in bound.headline
    assert bound.where[0].function == "step_wait"
    here = next(fix for fix in bound.fixes if "in the training process" in fix.action)
    assert here.estimated_speedup == pytest.approx(1 / (1 - bound.share_of_step + 4 * 5 / 105), rel=0.05)


def test_environments_that_compute_for_longer_than_messages_take_are_told_by_their_lines():
    sent = [([0, 1, 55, 57], 60), ([0, 1, 55, 51], 20)]
    dear, cheap = (
        found(*sent, beside=processes_of_environments(4, cpu, ([52, 2, 53], n)))["input_bound"]
        for cpu, n in ((0.4, 60), (0.1, 3))
    )
    for bound in (dear, cheap):
        assert "waits for messages of environments in 4 processes" in bound.headline
    assert dear.action == "make collide() world.py:5 cheaper (vectorise or cache it)"
    assert "SyncVectorEnv" in cheap.action and len(cheap.fixes) == 1


def test_what_the_model_generates_before_backward_is_data_and_after_it_is_side_work():
    before, after = found(([10, 11, 4], 80)), found(([12, 11, 4], 80))
    assert before["input_bound"].cause == "rollout"
    assert "runs the model to generate the data" in before["input_bound"].headline
    assert before["input_bound"].severity == "info"  # generating is the training's own work
    assert before["input_bound"].estimated_speedup is None
    assert "input_bound" not in after and "side_work" in after


@pytest.mark.parametrize(("caches", "whole"), [(0, True), (20, False)])
def test_generation_in_which_no_layer_keeps_keys_and_values_is_told(caches, whole):
    kept = [([10, 11, 4, 40], caches)] * bool(caches)
    bound = found(([10, 11, 4], 20), ([10, 11, 4, 39], 60), *kept)["input_bound"]
    assert bound.action.startswith(
        "keep the keys and values of the tokens so far" if whole else "run the model for more"
    )
    assert ("over whole sequences for each token" in bound.headline) is whole


def test_other_things_have_steps_too_and_evaluation_is_none():
    assert "input_bound" not in found(([16, 17], 80))
    assert "input_bound" not in found(([19, 20, 14], 80))
