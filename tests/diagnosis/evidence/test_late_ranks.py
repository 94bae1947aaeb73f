"""Ranks that take turns being late, from single steps."""

import gc
import random
from itertools import pairwise
from typing import Any

import pytest

from tests.diagnosis.cpu import AUGMENT, BACKWARD
from tests.session.records import by_rule, extend, frames, header, loop, rank, session_of, stacks, steps, thread
from tuimon.diagnosis.evidence.evidence import Evidence, evidence_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.judging import diagnose
from tuimon.records import RankStep, Steps

COUNT, LATE = 300, 217
LINES = frames(
    ("train.py", 40, "__getitem__", "return decode(self.rows[n])", True),
    ("/lib/site-packages/torch/utils/data/dataloader.py", 730, "__next__"),
    first=12,
)
FORWARD_US, BACKWARD_US, OPTIMIZER_US = 6000, 10_000, 1000


class Training:
    """Gloo ranks whose data takes 3 ms, and 20 ms more in steps of which somebody is told to be late."""

    def __init__(self, ranks: int, seed: int = 1, late_us: int = 20_000) -> None:
        self.random = random.Random(seed)
        self.ranks = ranks
        self.late_us = late_us

    def window(self, t: int, late: list[int | None], first_index: int, shift: int = 0) -> list[Steps]:
        """Twelve steps, all ranks: each ends when the last has its gradients; ``late``: by step."""
        data = [
            [3000 + self.random.randrange(300) + self.late_us * (late[n] == rank) for n in range(12)]
            for rank in range(self.ranks)
        ]
        slowest = [max(data[rank][n] for rank in range(self.ranks)) for n in range(12)]
        return [self._of_rank(t, rank, data[rank], slowest, first_index + shift * rank) for rank in range(self.ranks)]

    def _of_rank(self, t: int, rank: int, data: list[int], slowest: list[int], first_index: int) -> Steps:
        backward = [BACKWARD_US + most - own for own, most in zip(data, slowest, strict=True)]
        lengths = [most + FORWARD_US + BACKWARD_US + OPTIMIZER_US for most in slowest]
        mean = {
            "data": sum(data) / 12e3, "forward": FORWARD_US / 1e3,
            "backward": sum(backward) / 12e3, "optimizer": OPTIMIZER_US / 1e3,
        }  # fmt: skip
        single = [
            RankStep(first_index + n, sum(lengths[n + 1 :]), data[n], FORWARD_US, backward[n], OPTIMIZER_US, 0, 0)
            for n in range(0, 12, 4)
        ]
        return steps(t, mean, count=12, pid=100 + rank, first_index=first_index, rank_steps=single)


def judged(training: Training, turn: list[int | None], shift: int = 0, delay: float = 0.0) -> dict[str, Finding]:
    """``turn``: who is late in one step after the other, again and again; ``delay``: share of waits for a core."""
    ranks = [rank(number, of=training.ranks) for number in range(training.ranks)]
    session = session_of(header(cpu_count=16), AUGMENT, LINES, ranks)
    for t in range(1, 15):
        late = [training.random.choice(turn) for _ in range(12)]
        for record in training.window(t, late, 12 * (t - 1), shift):
            backward = next(phase.total_ns for phase in record.phases if phase.name == "backward")
            busy = 1.0 - (backward - 12 * BACKWARD_US * 1000) / record.total_ns  # it waits for others in backward
            extend(session, thread(t, busy - delay, delay, pid=record.pid), record)
    return by_rule(extend(session, [stacks(14, ([3, 13, 12], 20), (BACKWARD, 60), pid=each.pid) for each in ranks]))


def test_ranks_that_take_turns_are_told_with_their_shares_the_phase_and_the_line() -> None:
    finding = judged(Training(4), [0, 0, 0, 1, 2, 3])["straggler_rank"]
    assert (finding.cause, finding.evidence["phase"], finding.where[0].line) == ("in_turn", "data", 40)
    assert finding.evidence["rank"] == 0
    assert finding.evidence["last_share"] == pytest.approx(0.5, abs=0.2)
    assert finding.evidence["longer_ms"] == pytest.approx(20, rel=0.05)
    assert "ranks take turns being late (0 in " in finding.headline
    assert "20.0 ms longer in data" in finding.headline and finding.where[0].function == "__getitem__"


def test_who_is_late_every_time_is_no_turn() -> None:
    finding = judged(Training(4), [2])["straggler_rank"]
    assert (finding.cause, finding.evidence["rank"]) == (None, 2)


@pytest.mark.parametrize(
    ("late_us", "how", "told"),
    [
        (0, {}, False),
        (1500, {}, False),  # a little
        (6000, {}, True),
        (6000, {"delay": 0.2}, False),  # all wait for cores: one is last by chance
        (20_000, {"delay": 0.2}, True),
        (20_000, {"shift": 8}, False),  # hooks came into each rank at another step: numbers are of other steps
    ],
)
def test_what_is_worth_telling_and_no_chance_is_told(late_us: int, how: dict[str, Any], told: bool) -> None:
    findings = judged(Training(4, late_us=late_us), [0, 1, 2, 3], **how)
    assert [each.cause for rule, each in findings.items() if rule == "straggler_rank"] == ["in_turn"] * told


def many(count=COUNT, late=LATE):
    session = session_of(header(cpu_count=64))
    for n, pid in enumerate(range(1000, 1000 + count)):
        data, cpu = (40, 0.9) if n == late else (5, 0.5)
        used = [thread(t, cpu, 0.0, pid) for t in (1, 2, 3)]
        extend(session, rank(n, pid, of=count), used, loop(3, {"data": data, "backward": 95 - data}, pid=pid))
        session.add(stacks(3, ([0], 40), pid=pid))
    return session


def test_of_many_the_latest_and_an_even_choice_are_compared():
    compared = sorted(rank.pid for rank in evidence_of(many().over("recent").of(1001)).compared)
    assert {1001, 1000 + LATE} <= {*compared} and len(compared) <= 33
    assert max(after - before for before, after in pairwise(compared)) <= 14


def test_another_training_of_the_command_is_not_compared():
    session = many(4, 2)
    for n, pid in enumerate((2000, 2001)):
        extend(session, rank(n, pid, ppid=60), steps(3, {"data": 5, "backward": 90}, pid=pid))
    assert {rank.pid for rank in evidence_of(session.over("recent").of(1000)).compared} == {1000, 1001, 1002, 1003}
    session.focus_on(2001)
    assert {rank.pid for rank in evidence_of(session.over("recent").of(2001)).compared} == {2000, 2001}


def test_the_evidence_of_many_ranks_is_gone_once_it_is_judged():
    session = many(40, 7)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert diagnose(session)
        gc.collect()
        assert not [left for left in gc.garbage if isinstance(left, Evidence)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
