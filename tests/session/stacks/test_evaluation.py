"""Evaluation that no DataLoader fetches for, in sessions of literal records."""

import pytest

from tests.session.records import counted, frames, loop, one_process
from tuimon.records import Loader, LoaderFacts

TORCH = "/lib/site-packages/torch"
SB3 = "/v/lib/python3.11/site-packages/stable_baselines3/common"
# The user's code:                                 line
#   main: if step % 100 == 0:                      19
#             estimate_loss()                      20
#         x = batch()                              21
#         with torch.no_grad(): soft = teacher(x)  22
#         loss = model(x)                          23
#         loss.backward()                          24
#         optimizer.step()                         25
#         with torch.no_grad():                    26
#             hits(model(held_out))                27
#         save()                                   28
#   estimate_loss: with torch.no_grad():           40
#                      for k in range(200):        41
#                          y = batch()             42
#                          model(y)                43
#   play: with torch.no_grad(): ... model(y)       48 to 50
PLACES = {
    "early": ("a.py", 20, "main", "estimate_loss()", True),
    "prepare": ("a.py", 21, "main", "x = batch()", True),
    "teacher": ("a.py", 22, "main", "with torch.no_grad(): soft = teacher(x)", True, "", "", (22, 22)),
    "forward": ("a.py", 23, "main", "loss = model(x)", True),
    "backward": ("a.py", 24, "main", "loss.backward()", True),
    "update": ("a.py", 25, "main", "optimizer.step()", True),
    "test": ("a.py", 27, "main", "hits(model(held_out))", True, "", "", (26, 27)),
    "save": ("a.py", 28, "main", "save()", True),
    "eval batch": ("a.py", 42, "estimate_loss", "y = batch()", True, "", "", (40, 43)),
    "eval model": ("a.py", 43, "estimate_loss", "model(y)", True, "", "", (40, 43)),
    "played": ("a.py", 50, "play", "model(y)", True, "", "", (48, 50)),
    "batch": ("b.py", 9, "batch", "return torch.stack(rows)", True),
    "module": (f"{TORCH}/nn/modules/module.py", 6, "_call_impl"),
    "backward()": (f"{TORCH}/autograd/__init__.py", 7, "backward"),
    "step()": (f"{TORCH}/optim/optimizer.py", 8, "wrapper"),
    "collect": (f"{SB3}/on_policy_algorithm.py", 200, "collect_rollouts"),
    "policy": (f"{SB3}/evaluation.py", 90, "evaluate_policy"),
    "environment": ("/v/lib/python3.11/site-packages/gymnasium/core.py", 5, "step"),
}
TRAINING = {"prepare, batch": 3, "forward, module": 6, "backward, backward()": 9, "update, step()": 3}
PHASES = {"between": 4, "backward": 4.5, "optimizer": 1.5}
LOADER = LoaderFacts(dataset="D", kind="map", workers=2)


def session_of(evaluation, phases=PHASES, windows=12, more=(), **facts):
    """Windows of 1 s, each with five times so many samples; ``facts``: more of the steps."""
    samples = {stack: round(5 * n) for stack, n in (TRAINING | evaluation).items()}
    made = loop(windows, phases, *counted(PLACES, samples), count=100, **facts)
    return one_process(frames(*PLACES.values()), *more, made)


def shares(session):
    return {row.name: row.share for row in session.over("recent").of(100).phases.rows}


EVALUATION = {"early, eval batch, batch": 3, "early, eval model, module": 6}


def test_a_function_that_runs_the_model_without_gradients_and_is_named_so_evaluates():
    session = session_of(EVALUATION)
    found = shares(session)
    assert found["eval"] == pytest.approx(0.4 * 9 / 18, abs=0.01)
    steps_part = 0.4 - 0.4 * 9 / 18  # of the time between two passes, the rest
    assert found["data"] == pytest.approx(steps_part * 3 / 9 / (1 - found["eval"]), abs=0.01)
    assert sum(share for name, share in found.items() if name != "eval") == pytest.approx(1.0)
    row = next(row for row in session.over("recent").of(100).phases.rows if row.name == "eval")
    assert row.estimated and row.error > 0.01 and row.ms_per_step is None


@pytest.mark.parametrize(
    "beside",
    [
        {"early, played, module": 6},  # a teacher, or what makes the data for many steps, as a self-play does
        {"early, played, module": 20, "save, played, module": 2},  # all of a program that generates, and trains nothing
        {"teacher, module": 6},
        {"test": 6},  # an average of the weights now and then
        {"early, collect, environment": 9, "teacher, module": 6},  # the policy, where data is made
    ],
)
def test_what_else_runs_without_gradients_is_no_evaluation(beside):
    assert "eval" not in shares(session_of(beside))


@pytest.mark.parametrize("torn", [{}, {"test, step()": 0.2}])  # its inner frames were read in the update before
def test_where_a_loader_is_fetched_from_it_is_taken_from_what_markers_count(torn):
    phases = {"data": 2, "forward": 2, "backward": 2, "optimizer": 1, "other": 3}
    loader = Loader(t=1.0, pid=100, number=0, role="train", window_s=1.0, fetches=10, wait_ns=0, facts=LOADER)
    session = session_of({"test, module": 6, "save": 3} | torn, phases=phases, more=[loader])
    found = shares(session)
    assert found["eval"] == pytest.approx(6 / 30, abs=0.01)
    assert found["other"] == pytest.approx((0.3 - 6 / 30) / (1 - found["eval"]), abs=0.01)
    assert found["backward"] == pytest.approx(0.2 / (1 - found["eval"]), abs=0.01)


def test_episodes_that_a_library_plays_to_evaluate_are_no_rollout():
    rollout = {"early, collect, environment": 9}
    played = {"early, collect, policy, environment": 6, "early, collect, policy, module": 3}
    found = shares(session_of(rollout | played))
    assert found["eval"] == pytest.approx(0.4 * 9 / 27, abs=0.01)
    assert found["data"] * (1 - found["eval"]) == pytest.approx(0.4 * 12 / 27, abs=0.01)
