"""What a node is compared with, by hand."""

from __future__ import annotations

import random
import statistics

import pytest

from bench_control.judging.peers import others_median, reference_for, reference_variance, usable
from bench_control.words.verdicts import ReferenceMode


@pytest.mark.parametrize(
    ("value", "ordered", "reference"),
    [
        (8.5, [8.5, 9.4, 9.5, 9.7], 9.5),  # three others: one middle
        (10.0, [9.0, 10.0, 10.0], 10.0),  # others 9 and 10: of all medians from 9 to 10 the nearest
        (9.0, [9.0, 10.0, 10.0], 10.0),
        (9.6, [9.0, 9.6, 10.0], 9.6),  # between the others: off from neither
        (8.0, [8.0, 9.0, 10.0], 9.0),
        (10.0, [9.0, 9.0, 10.0, 10.0, 10.0], 10.0),  # two bad of five: others 9, 9, 10, 10
        (9.0, [9.0, 9.0, 10.0, 10.0, 10.0], 10.0),  # others 9, 10, 10, 10
        (7.0, [10.0, 10.1, 10.2], 10.1),  # not among them: a drill
        (7.0, [10.0, 10.1], 10.0),
    ],
)
def test_the_median_of_the_others_nearest_to_the_node(value: float, ordered: list[float], reference: float) -> None:
    assert others_median(value, ordered) == reference


def test_it_is_a_median_of_the_others_whatever_the_values() -> None:
    """A median halves the others: no more than half lie on either side."""
    draw = random.Random(5)
    for _ in range(300):
        values = sorted(draw.choice((9.0, 9.5, 10.0, draw.uniform(8, 11))) for _ in range(draw.randint(3, 9)))
        value = draw.choice(values)
        reference = others_median(value, values)
        others = list(values)
        others.remove(value)
        assert sum(other < reference for other in others) <= len(others) / 2
        assert sum(other > reference for other in others) <= len(others) / 2
        assert abs(value - reference) <= abs(value - statistics.median(others))


def test_mean_and_median_are_of_all() -> None:
    """9.4, 9.8, 10, 10.4: mean 9.9, median 9.9; with 8.4 in place of 9.4 the mean is 9.65."""
    assert reference_for(9.4, [9.4, 9.8, 10.0, 10.4], ReferenceMode.MEDIAN) == pytest.approx(9.9)
    assert reference_for(8.4, [8.4, 9.8, 10.0, 10.4], ReferenceMode.MEAN) == pytest.approx(9.65)


def test_a_drilled_value_is_no_reference_while_three_others_are_there() -> None:
    assert usable([9.5, 9.4, 9.6], [3.0]) == [9.4, 9.5, 9.6]
    assert usable([9.5, 9.4], [3.0]) == [3.0, 9.4, 9.5]


def test_the_variance_of_the_reference() -> None:
    """Three others with two runs each: pi / 6 of a run's 1/2. Own references have none."""
    assert reference_variance(ReferenceMode.LEAVE_ONE_OUT_MEDIAN, [2, 2, 2, 2]) == pytest.approx(0.2618, abs=1e-4)
    assert reference_variance(ReferenceMode.HISTORY, [2, 2]) == 0.0
