"""Intervals must hold for steps that depend on one another: as often as they say, and no wider than they have to be."""

import math

import pytest

from tests.views.comparison.series import FACTS, correlated, stretches
from tuimon.views.comparison.runs import Estimate, Run, difference, mean_of, mean_step_ms, t_quantile


@pytest.mark.parametrize(
    ("freedom", "probability", "value"),
    [  # from tables
        (1, 0.975, 12.706),
        (2, 0.975, 4.303),
        (3, 0.975, 3.182),
        (5, 0.975, 2.571),
        (9, 0.975, 2.262),
        (30, 0.975, 2.042),
        (3, 0.995, 5.841),
        (10, 0.9995, 4.587),
        (math.inf, 0.975, 1.960),
    ],
)
def test_quantiles_of_students_t(freedom: float, probability: float, value: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(value, rel=0.01)


def log_mean(series: list[float]) -> Estimate:
    """Of a run with such steps, without the noise between runs."""
    run = Run(name="run", facts=FACTS, stretches=stretches(series))
    return mean_of([math.log(mean_step_ms(block)) for block in run.blocks])


def missed(number: int, phi: float, pairs: int = 100) -> float:
    """The share of pairs without any difference whose interval denies that."""
    found = 0
    for pair in range(pairs):
        one, other = (log_mean(correlated(number, phi, 1000 * pair + side)) for side in (1, 2))
        found += not difference(one, other).contains(0.0)
    return found / pairs


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_runs_that_do_not_differ_are_seldom_called_different(phi: float) -> None:
    """Of 300 pairs 4.7 % at 0, 5.3 % at 0.5. Of 100 pairs, 9 are not unlikely."""
    assert missed(60, phi) <= 0.09


def test_a_constant_series_has_no_variance() -> None:
    assert log_mean([50.0] * 20).variance == pytest.approx(0.0, abs=1e-12)


def test_several_runs_vary_from_run_to_run() -> None:
    """By hand: means 10 and 12, variances 1 each, three runs a side: 4 degrees, t = 2.776, deviation 0.8165."""
    interval = difference(mean_of([9.0, 10.0, 11.0]), mean_of([11.0, 12.0, 13.0]))
    assert interval.low == pytest.approx(2 - 2.776 * 0.8165, abs=0.02)
