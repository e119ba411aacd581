"""Speed-ups: the ratio within each round, and how sure it is."""

from __future__ import annotations

import math

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_result
from trainbench.comparison.configurations import SpeedUp, paired_runs, speed_up
from trainbench.judging.noise import t_995


def runs(*rates: float, node: str = "gpu-1", windows: tuple[float, ...] | None = None) -> tuple[RunResult, ...]:
    """One run a round; its windows are all alike unless given."""
    return tuple(
        make_result(node, rate, round=round_, windows=windows or (rate, rate, rate))
        for round_, rate in enumerate(rates, start=1)
    )


def test_the_ratio_is_the_geometric_mean_over_the_rounds_that_both_have() -> None:
    """Ratios 2 and 8, and a third round that only one of them has: sqrt(16) is 4."""
    actual = speed_up(runs(10.0, 10.0), runs(20.0, 80.0, 99.0))

    assert actual is not None
    assert actual.ratio == pytest.approx(4.0)


def test_the_noise_is_that_of_the_rounds_that_both_have() -> None:
    """Log ratios 0 and 0.02: their mean has the variance 0.02^2 / 4, with one degree of freedom. The third round, which
    only one of them has, does not count.
    """
    actual = speed_up(runs(10.0, 10.0), runs(10.0, 10.0 * math.exp(0.02), 99.0))

    assert actual is not None
    assert actual.log_half_width == pytest.approx(0.01 * t_995(1))
    assert actual.ratio == pytest.approx(math.exp(0.01))
    assert not actual.is_beyond_noise


def test_two_rounds_take_the_noise_of_further_configurations_that_ran_in_both() -> None:
    """Three log ratios to the first round, 0, 0.02 and 0.01: squares about their mean 2e-4, half of it over two
    degrees, so a run has 0.0071. A configuration that lacks a round is in no pool.
    """
    base, other, third = (runs(10.0, 10.0 * math.exp(step)) for step in (0.0, 0.02, 0.01))
    actual = speed_up(base, other, [third, runs(10.0), ()])

    assert actual is not None
    assert actual.log_half_width == pytest.approx(math.sqrt(5e-5) * t_995(2))


def test_a_single_round_leaves_the_windows() -> None:
    """Of 9.9, 10 and 10.1 the deviation is 1 %, of equal ones 0: half their squares, over the degrees of the first."""
    actual = speed_up(runs(10.0, windows=(9.9, 10.0, 10.1)), runs(20.0, windows=(20.0, 20.0, 20.0)))

    assert actual is not None
    assert actual.log_half_width == pytest.approx(math.sqrt(0.01**2 / 2) * math.sqrt(2) * t_995(2), rel=1e-2)


@pytest.mark.parametrize(
    ("ratio", "log_half_width", "text", "beyond"),
    [
        (1.88, 0.02, "1.88x ± 0.04", True),
        (1.002, 0.004, "1.002x ± 0.004", False),
        (0.5, 0.0, "0.500x ± 0.001", True),
        (1.5, 0.7, "1.50x (0.74x to 3.02x)", False),
    ],
)
def test_the_text_shows_as_many_digits_as_are_known(
    ratio: float, log_half_width: float, text: str, beyond: bool
) -> None:
    actual = SpeedUp(ratio, log_half_width)

    assert (actual.text(), actual.is_beyond_noise) == (text, beyond)


def test_the_half_width_is_that_of_the_wider_side() -> None:
    """2 x (e^0.1 - 1) = 0.2103; below it would be 2 x (1 - e^-0.1) = 0.1903."""
    actual = SpeedUp(2.0, 0.1)
    assert actual.half_width == pytest.approx(0.21034, rel=1e-4)
    assert actual.scaled(0.5) == SpeedUp(1.0, 0.1)
    assert SpeedUp(2.0, None).half_width is None


def test_exactly_as_far_as_the_noise_is_not_beyond_it() -> None:
    assert not SpeedUp(math.exp(0.5), math.log(math.exp(0.5))).is_beyond_noise
    assert SpeedUp(math.exp(-0.51), 0.5).is_beyond_noise
    assert not SpeedUp(2.0, None).is_beyond_noise


def test_an_interval_that_excludes_1_reads_so() -> None:
    """1.053 x (e^0.0515 - 1) = 0.056 is more than 0.053, yet 1.053 / e^0.0515 = 1.0001."""
    actual = SpeedUp(1.053, 0.0515)
    assert actual.is_beyond_noise
    assert actual.text() == "1.05x (1.00x to 1.11x)"


def test_from_a_fifth_on_the_interval_has_two_sides() -> None:
    assert SpeedUp(1.0, 0.2).text() == "1.00x ± 0.22"
    assert SpeedUp(1.0, 0.21).text() == "1.00x (0.81x to 1.23x)"


def test_only_rounds_of_a_node_in_which_both_ran_are_paired() -> None:
    base = (*runs(10.0, 11.0), *runs(12.0, node="gpu-2"))
    other = (*runs(20.0), *runs(24.0, 25.0, node="gpu-2"))
    pairs = [[(r.spec.identity.node, r.spec.identity.round) for r in side] for side in paired_runs(base, other)]
    assert pairs == [[("gpu-1", 1), ("gpu-2", 1)]] * 2
    assert paired_runs(base, ()) == ((), ())
