"""What frames of libraries mean: literal frames, and some that only look alike."""

from __future__ import annotations

from tuimon.library_code import (
    is_collector,
    is_environment,
    is_generation,
    is_rollout_entry,
    steps_environment,
)


def test_what_makes_the_data_of_reinforcement_learning():
    packages = "/venv/lib/python3.11/site-packages"
    algorithm = f"{packages}/stable_baselines3/common/on_policy_algorithm.py"
    assert is_collector(algorithm, "collect_rollouts") and not is_collector(algorithm, "learn")
    assert is_rollout_entry(f"{packages}/transformers/generation/utils.py", "generate")
    assert is_environment(f"{packages}/stable_baselines3/common/vec_env/dummy_vec_env.py", "step_wait")
    assert is_environment(f"{packages}/gymnasium/wrappers/common.py", "step")
    assert is_environment(f"{packages}/skrl/envs/wrappers/torch/gymnasium_envs.py", "step")
    assert is_environment(f"{packages}/own_env.py", "reset")
    assert not is_environment(f"{packages}/torch/optim/adam.py", "step")
    assert not is_environment("/home/u/envs/rl/lib/python3.11/site-packages/nice/trainer.py", "step")
    assert is_generation("/home/u/gpt.py", "generate")
    for line in ("state, reward, done, _ = world.step(action)", "out = self.envs.step(actions)"):
        assert steps_environment(line)
    for line in ("optimizer.step()", "loss, norm = meter.step(loss)", "scheduler.step(metric)"):
        assert not steps_environment(line)
