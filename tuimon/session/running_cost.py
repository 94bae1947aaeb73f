"""The cost of a training: money by the price of a GPU-hour, and energy by the GPUs' own counters."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tuimon.records import Price
from tuimon.session.flops import gpus_of
from tuimon.session.progress import rates_in
from tuimon.session.rank_list import training_of
from tuimon.session.session import Session

#: So many samples, or steps, a cost is of.
THOUSAND = 1000


class RunningCost(NamedTuple):
    """The cost of 1,000 samples, or steps where the rate of samples is unknown; None where it is not measured."""

    price: Price
    gpus: int  # of the training, all its ranks together
    of: Literal["samples", "steps"]
    money: float | None
    joules: float | None

    @property
    def money_per_day(self) -> float:
        """The price of a day on all its GPUs."""
        return self.price.per_gpu_hour * self.gpus * 24


def running_cost(session: Session, pid: int) -> RunningCost | None:
    """By the pace of the last 30 s, or of the run once it has ended; None without a price, or a GPU of the process.

    Of several ranks each makes samples of its own on GPUs of its own: one of them shows the cost of all.
    """
    process, price = session.process(pid), session.price
    if process is None or price is None:
        return None
    run, own = session.shown(), gpus_of(session, [process])
    if not own:
        return None
    steps = run.steps(pid)
    steps_per_s = steps.per_second if steps is not None else None
    samples_per_s = rates_in(run, pid).samples
    per_s = samples_per_s or steps_per_s
    joules = next((row.joules_per_step for row in run.gpus() if row.joules_per_step is not None), None)
    return RunningCost(
        price=price,
        gpus=len(gpus_of(session, training_of(session.over("recent"), pid)) or own),
        of="samples" if samples_per_s else "steps",
        money=price.per_gpu_hour * len(own) / 3600 * THOUSAND / per_s if per_s else None,
        joules=joules * THOUSAND * steps_per_s / per_s if joules is not None and per_s and steps_per_s else None,
    )
