"""The sampler's plan, shares and turns; on literal costs."""

from __future__ import annotations

from collections import Counter

import pytest

from tuimon.sources.stacks.cpu_budget import CostModel, plan_window, split_budget
from tuimon.sources.stacks.schedule import PlannedWindow, ProcessKey, WindowSchedule


def test_the_cost_of_a_window_is_learnt() -> None:
    cost = CostModel()
    for instants in (20, 60, 100, 40, 80) * 12:
        cost.add_window(instants, 0.05 + instants * 0.001)
    assert cost.start_s == pytest.approx(0.05, rel=0.05)
    assert cost.sample_s == pytest.approx(0.001, rel=0.05)


def test_a_plan_follows_what_is_asked_and_what_it_costs() -> None:
    cheap, dear, too_dear = CostModel(1), CostModel(1), CostModel(1)
    for _ in range(60):
        dear.add_window(50, 1.0)
        too_dear.add_window(10, 2.0)
    assert plan_window(cheap, 1.0) == (100, 2.0, True)
    assert plan_window(cheap, 1.0, limit_hz=30) == (30, 2.0, True)
    assert plan_window(cheap, 1.0, limit_hz=0.3) == (1, 2.0, True)
    assert plan_window(cheap, 0.03).rate_hz >= 20
    assert plan_window(CostModel(20), 0.03).window_s > plan_window(cheap, 0.03).window_s
    assert plan_window(dear, 0.03).rate_hz <= 2
    paused = plan_window(too_dear, 0.03)
    assert (paused.rate_hz, paused.continuous) == (1, False)


@pytest.mark.parametrize(
    ("trainers", "workers", "shares"),
    [
        (1, 0, (0.0276, 0.0, 0.0)),
        (1, 8, (0.01932, 0.0, 0.00828)),
        (64, 0, (0.01104, 0.01656, 0.0)),
        (0, 3, (0.0, 0.0, 0.0276)),
        (0, 0, (0.0, 0.0, 0.0)),
    ],
)
def test_the_first_rank_gets_its_share(trainers: int, workers: int, shares: tuple[float, float, float]) -> None:
    got = split_budget(0.03, trainers, workers)
    assert got[:3] == pytest.approx(shares)
    assert sum(got) <= 0.03 + 1e-12


class Simulated:
    """WindowSchedule against a clock of our own: each window costs what the process really costs."""

    def __init__(self, budget: float, instants_s: dict[int, float]) -> None:
        self.schedule = WindowSchedule(budget, 100.0, 0.0)
        self.instants_s = instants_s
        self.running: dict[int, tuple[float, PlannedWindow]] = {}
        self.cpu_s = 0.0
        self.sampled_s: Counter[int] = Counter()
        self.most = 0

    def waits_for_retry(self, key: ProcessKey) -> bool:
        return key[0] not in self.instants_s

    def run(self, seconds: float, trainers: list[int], workers: list[int]) -> None:
        self.run_on(0.0, seconds, trainers, workers)

    def run_on(self, begin_s: float, seconds: float, trainers: list[int], workers: list[int]) -> None:
        for tenth in range(int(begin_s * 10), int((begin_s + seconds) * 10)):
            now_s = tenth / 10
            for pid, (due_s, window) in list(self.running.items()):
                if now_s >= due_s:
                    del self.running[pid]
                    instants = max(round(window.plan.rate_hz * window.plan.window_s), 1)
                    cpu_s = 0.01 + instants * self.instants_s[pid]
                    window.settle(instants, cpu_s)
                    self.cpu_s += cpu_s
                    self.sampled_s[pid] += window.plan.window_s
            found = self.schedule.due_windows(
                trainers, workers, lambda pid: (pid, 1), self.running.keys(), now_s, self.waits_for_retry
            )
            for window in found:
                self.running[window.key[0]] = (now_s + window.plan.window_s, window)
            self.most = max(self.most, len(self.running))


NO_PID = 1 << 23  # pids beyond what the kernel gives out


@pytest.mark.parametrize(("processes", "instant_s"), [(1, 0.0005), (10, 0.0005), (64, 0.0005), (1, 0.05), (3, 0.05)])
def test_the_budget_is_kept_whatever_the_number_of_processes(processes: int, instant_s: float) -> None:
    trainers = list(range(NO_PID, NO_PID + processes))
    simulated = Simulated(0.03, dict.fromkeys(trainers, instant_s))
    simulated.run(600, trainers, [])
    assert 0.012 < simulated.cpu_s / 600 < 0.032
    assert all(simulated.sampled_s[pid] > 0 for pid in trainers)  # nobody is forgotten
    if instant_s < 0.01:
        assert simulated.sampled_s[trainers[0]] > 0.93 * 600  # in steps of a tenth of a second
    if processes == 10:  # windows of 20 s, staggered at the start; the last ones have not ended
        assert all(seconds > 0.88 * 600 for seconds in simulated.sampled_s.values())


def test_a_training_that_has_no_core_to_spare_is_spared_once_it_is_known() -> None:
    trainer = NO_PID
    full, spared = Simulated(0.02, {trainer: 0.00025}), Simulated(0.02, {trainer: 0.00025})
    spared.schedule.are_cores_crowded = True
    for simulated in (full, spared):
        simulated.run(30, [trainer], [])
    assert spared.cpu_s == full.cpu_s
    for simulated in (full, spared):
        simulated.cpu_s, simulated.sampled_s[trainer] = 0.0, 0.0
        simulated.run_on(30, 300, [trainer], [])
    assert spared.cpu_s < 0.3 * full.cpu_s
    assert spared.sampled_s[trainer] > 0.9 * 300  # all the time as well, but more rarely
