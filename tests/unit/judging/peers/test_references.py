"""The figure that a node is compared with, by hand."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from trainbench.core.verdicts import ReferenceMode
from trainbench.judging.node_runs import GpuPlace, Key
from trainbench.judging.peers.references import References, nearest_median, reference_variance

OTHERS = ReferenceMode.LEAVE_ONE_OUT_MEDIAN


def reference(
    values: list[float], place: int, mode: ReferenceMode = OTHERS, drilled: int | None = None
) -> float | None:
    """Of the node at `place`; each node has one value."""
    keys = [Key(f"node-{i}") for i in range(len(values))]
    no_example = [] if drilled is None else [keys[drilled]]
    return References(dict(zip(keys, values, strict=True)), no_example, mode).of(keys[place])


def node(name: str, *rates: float) -> dict[Key, float]:
    return {Key(name, GpuPlace(i, f"GPU-{name}-{i}")): rate for i, rate in enumerate(rates)}


def of_gpus(*nodes: dict[Key, float]) -> dict[str, float | None]:
    """ "a3": the reference of GPU 3 of node a."""
    values = {key: value for of_node in nodes for key, value in of_node.items()}
    references = References(values, (), OTHERS)
    return {f"{key.node}{key.gpu.index if key.gpu else ''}": references.of(key) for key in values}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([8.5, 9.4, 9.5, 9.7], 9.5),  # three others: one middle
        ([10.0, 9.0, 10.0], 10.0),  # others 9 and 10: of all medians from 9 to 10 the nearest
        ([9.0, 10.0, 10.0], 10.0),
        ([9.6, 9.0, 10.0], 9.6),  # between the others: off from neither
        ([8.0, 9.0, 10.0], 9.0),
        ([10.0, 9.0, 9.0, 10.0, 10.0], 10.0),  # two bad of five: others 9, 9, 10, 10
        ([9.0, 9.0, 10.0, 10.0, 10.0], 10.0),  # others 9, 10, 10, 10
    ],
)
def test_the_median_of_the_others_nearest_to_the_node(values: list[float], expected: float) -> None:
    assert reference(values, 0) == expected


def test_a_drilled_node_is_compared_with_all_others() -> None:
    assert reference([7.0, 10.0, 10.1, 10.2], 0, drilled=0) == 10.1


def test_it_is_a_median_of_the_others_whatever_the_values() -> None:
    """A median halves the others: no more than half lie on either side."""
    draw = random.Random(5)
    for _ in range(300):
        value, *others = (draw.choice((9.0, 9.5, 10.0, draw.uniform(8, 11))) for _ in range(draw.randint(3, 9)))
        median = nearest_median(value, sorted(others))
        assert median == reference([value, *others], 0)
        assert sum(other < median for other in others) <= len(others) / 2
        assert sum(other > median for other in others) <= len(others) / 2
        assert abs(value - median) <= abs(value - statistics.median(others))


def test_mean_and_median_are_of_all() -> None:
    """9.4, 9.8, 10, 10.4: mean 9.9, median 9.9; with 8.4 in place of 9.4 the mean is 9.65."""
    assert reference([9.4, 9.8, 10.0, 10.4], 0, ReferenceMode.MEDIAN) == pytest.approx(9.9)
    assert reference([8.4, 9.8, 10.0, 10.4], 0, ReferenceMode.MEAN) == pytest.approx(9.65)


def test_a_drilled_value_is_no_reference_while_three_others_are_there() -> None:
    """Others of 9.6: 9.4 and 9.5, the nearest 9.5; with two others only, the drilled 3 counts: others 3 and 9.4."""
    assert reference([9.6, 9.5, 9.4, 3.0], 0, drilled=3) == 9.5
    assert reference([9.6, 9.4, 3.0], 0, drilled=2) == 9.4
    assert reference([9.4, 9.5, 3.0], 0, drilled=2) == 9.4


def test_two_nodes_of_one_value_have_no_reference() -> None:
    assert reference([10.0, 9.0], 0) is None


class TestGpus:
    def test_a_lone_node_compares_its_gpus_with_each_other(self) -> None:
        """Others of the slow one: 10, 10, 10."""
        assert of_gpus(node("a", 9.0, 10.0, 10.0, 10.0)) == {"a0": 10.0, "a1": 10.0, "a2": 10.0, "a3": 10.0}

    def test_two_gpus_leave_the_slower_one_unknown(self) -> None:
        assert of_gpus(node("a", 9.0, 10.0)) == {"a0": None, "a1": None}

    def test_a_hot_node_of_three_is_no_reference_for_its_own_gpus(self) -> None:
        """All GPUs of a at 9: its others are the medians of b and c, 10 and 10.2, nearest 10. Of b: 9 and 10.2, so 10
        lies between; a reference of all other GPUs would have been right here as well, and with fewer GPUs on b and c
        not (next test).
        """
        references = of_gpus(node("a", *[9.0] * 8), node("b", *[10.0] * 8), node("c", *[10.2] * 8))
        assert {references[f"a{i}"] for i in range(8)} == {10.0}
        assert {references[f"b{i}"] for i in range(8)} == {10.0}

    def test_a_bad_node_of_eight_gpus_does_not_outvote_good_ones_of_two(self) -> None:
        """Eight slow GPUs of twelve are a majority of the GPUs, and one node of three."""
        references = of_gpus(node("a", *[9.0] * 8), node("b", 10.0, 10.0), node("c", 10.0, 10.0))
        assert {references[f"a{i}"] for i in range(8)} == {10.0}
        assert {references[name] for name in ("b0", "b1", "c0", "c1")} == {10.0}

    def test_one_slow_gpu_of_a_node_moves_nobody_elses_reference(self) -> None:
        references = of_gpus(*(node(name, 5.0 if name == "a" else 10.0, *[10.0] * 7) for name in "abc"))
        assert set(references.values()) == {10.0}

    def test_all_gpus_of_one_of_two_nodes_are_half_of_the_fleet_and_both_halves_are_off(self) -> None:
        """Others of a slow one: three at 9, four at 10, median 10. Of a good one: four at 9, three at 10, median 9."""
        references = of_gpus(node("a", *[9.0] * 4), node("b", *[10.0] * 4))
        assert {references[f"a{i}"] for i in range(4)} == {10.0}
        assert {references[f"b{i}"] for i in range(4)} == {9.0}


def test_the_variance_of_the_reference() -> None:
    """Three others with two runs each: pi / 6 of a run's 1/2. Own references have none."""
    assert reference_variance(ReferenceMode.LEAVE_ONE_OUT_MEDIAN, [2, 2, 2, 2]) == pytest.approx(0.2618, abs=1e-4)
    assert reference_variance(ReferenceMode.MEDIAN, [2, 2, 2, 2]) == pytest.approx(math.pi / 16)  # pi / 8 of four, / 2
    assert reference_variance(ReferenceMode.HISTORY, [2, 2]) == 0.0


def test_a_node_votes_with_the_median_of_its_gpus_not_their_mean() -> None:
    """Node b's GPUs at 10, 10 and 4: its vote is 10, where their mean would be 8."""
    values = {**node("a", 9.0), **node("b", 10.0, 10.0, 4.0), **node("c", 9.0)}
    assert References(values, (), ReferenceMode.MEDIAN).examples[Key("b")] == 10.0


def test_the_node_with_the_fewest_runs_stands_for_all() -> None:
    """One run (variance 1) beside three nodes of three: the median of three others has pi / 6 of that."""
    assert reference_variance(ReferenceMode.LEAVE_ONE_OUT_MEDIAN, [1, 3, 3, 3]) == pytest.approx(math.pi / 6)
    assert reference_variance(ReferenceMode.MEAN, [3, 1]) == pytest.approx(1 / 2)
