"""The noise floor: how much equal runs differ, and what that leaves to be found. Figures by hand where they can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from bench_image.contract.spec import Drill
from tests.builders import campaigns, make_failed, make_independent, make_result
from tests.conftest import GOLDEN_DIR, Golden
from trainbench.comparison.noise_floor import (
    Floor,
    Spread,
    _between,
    _nodes_sd_pct,
    floors,
    headline,
    noise_advice,
    num_nodes,
)
from trainbench.core.markdown import table
from trainbench.judging.noise import Noise, Run
from trainbench.params.campaign_kind import CampaignKind
from trainbench.reporting.comparison_sections import comparison_sections, noise_tables
from trainbench.reporting.report import benchmark_report
from trainbench.reporting.verdict_text import verdict
from trainbench.results.artefacts import read_campaign
from trainbench.results.campaign import Campaign


def fleet(rates: dict[str, Sequence[float]], **fields: object) -> list[RunResult]:
    return [make_result(node, rate, round=i, **fields) for node, of in rates.items() for i, rate in enumerate(of, 1)]  # type: ignore[arg-type]


def measured(results: Sequence[RunResult], **params: object) -> Campaign:
    return campaigns.make_campaign(results, campaign_kind=CampaignKind.NOISE, params=params)


NOISY = {
    "gpu-1": (10.0, 10.1, 9.9, 10.05, 9.95),
    "gpu-2": (10.2, 10.3, 10.12, 10.22, 10.16),
    "gpu-3": (9.8, 9.88, 9.7, 9.86, 9.76),
    "gpu-4": (10.0, 10.12, 9.92, 10.04, 9.92),
}


def floor_of(sd_pct: float, nodes: int = 4, nodes_sd_pct: float | None = 0.0, df: int = 12, **fields: object) -> Floor:
    """A floor with given figures. 12 degrees of freedom: t at 99.5 % is 3.055."""
    spread = Spread(sd_pct=sd_pct, low_pct=sd_pct / 2, high_pct=sd_pct * 2, degrees_of_freedom=df)
    members = floors(fleet({f"gpu-{i}": (10.0, 10.1) for i in range(nodes)}))[0].nodes
    values = {
        "group_id": "g", "gpu_name": "NVIDIA H200", "between": spread, "between_own": spread,
        "within": None, "nodes_sd_pct": nodes_sd_pct, "nodes": members,
    }  # fmt: skip
    return Floor.model_validate(values | fields)


# --- figures ----------------------------------------------------------------------------------------------------------


def test_one_node_s_noise_by_hand() -> None:
    """log 9.9, 10, 10.1: their standard deviation is 1.0 % of the mean, from two degrees of freedom. The 95 % interval
    is sd * sqrt(2 / 7.378) = 0.521 sd to sd * sqrt(2 / 0.0506) = 6.285 sd.
    """
    (floor,) = floors(fleet({"gpu-1": (9.9, 10.0, 10.1)}))
    (node,) = floor.nodes
    assert node.between is not None
    assert node.between.sd_pct == pytest.approx(1.0, abs=0.001)
    assert node.between.low_pct == pytest.approx(0.521, abs=0.001)
    assert node.between.high_pct == pytest.approx(6.285, abs=0.01)
    assert node.range_pct == pytest.approx(2.0)
    assert floor.nodes_sd_pct is None


def test_what_a_round_does_to_all_nodes_is_no_noise_between_them() -> None:
    """Each round 1 % faster on all nodes: each node's own runs differ, the nodes do not."""
    (floor,) = floors(fleet({f"gpu-{i}": (10.0, 10.1, 10.201) for i in (1, 2, 3)}))
    assert floor.between is not None
    assert floor.between.sd_pct == pytest.approx(0, abs=1e-9)
    assert floor.nodes[0].between is not None
    assert floor.nodes[0].between.sd_pct == pytest.approx(0.995, abs=0.001)
    assert floor.between_own is not None
    assert floor.between_own.sd_pct == pytest.approx(0.995, abs=0.001)
    assert (floor.detectable_pct(1, 2) or 0) < 1e-6 < 1 < (floor.detectable_pct(1, None) or 0)


def test_the_nodes_own_differences_are_separated_from_the_noise() -> None:
    """Means of 9.9, 10, 10.1 without noise: 1 %."""
    (floor,) = floors(fleet({"a": (9.9,) * 5, "b": (10.0,) * 5, "c": (10.1,) * 5}))
    assert floor.nodes_sd_pct == pytest.approx(1.0, abs=0.001)


def test_detectable_slowdown_by_hand() -> None:
    """sd 1 %, 1 round against 3 peers: error = 0.01 * sqrt(1 + pi / 6) = 0.012343. Any of four nodes lies beyond 3.4264
    (t of 12 degrees at 0.99^(1/4)) in one night of a hundred: times the error 0.04229, 4.14 %. Found in 19 of 20: times
    (3.4264 + 1.6449), 6.07 %. One node against 10 past campaigns: sqrt(1 + pi / 20) = 1.0757, times 0.02681 (t at
    0.99): 2.84 %. With nodes that differ by 1 %, too: sqrt(2) times the error: 5.81 %.
    """
    floor = floor_of(1.0)
    assert floor.detectable_pct(1, 3) == pytest.approx(4.14, abs=0.01)
    assert floor.detectable_pct(1, 3, in_19_of_20=True) == pytest.approx(6.07, abs=0.01)
    assert floor.detectable_pct(1, None) == pytest.approx(2.84, abs=0.01)
    assert floor_of(1.0, nodes_sd_pct=1.0).detectable_pct(1, 3) == pytest.approx(5.81, abs=0.01)
    assert floor_of(1.0, between=None).detectable_pct(1, 3) is None


def test_failed_runs_drills_and_gangs_do_not_count() -> None:
    runs = fleet({"gpu-1": (9.9, 10.0, 10.1)})
    others = [
        make_failed("gpu-2"),
        make_result("gpu-3", 2.0, drill=Drill(slowdown_pct=75)),
        make_result("gpu-1", 30.0, strategy="ddp", nodes=2, gpus_per_node=1),
    ]
    (floor,) = floors([*runs, *others])
    assert [node.node for node in floor.nodes] == ["gpu-1"]
    assert floors([make_failed("gpu-2")]) == floors([]) == ()


# --- GPUs that measured by themselves ---------------------------------------------------------------------------------


def per_gpu(nodes: dict[str, Sequence[Sequence[float]]], **fields: object) -> list[RunResult]:
    """Node -> of each round the rate of each of its GPUs."""
    return [
        make_independent(node, rates, round=number, **fields)  # type: ignore[arg-type]
        for node, rounds in nodes.items()
        for number, rates in enumerate(rounds, start=1)
    ]


def test_one_noisy_gpu_does_not_hide_in_the_sum_of_its_node() -> None:
    """GPU 0 keeps 10; GPU 1 makes 9.9, 10, 10.1: 1 %, of the sum only half. Together sqrt((0 + 1) / 2) = 0.707 %, from
    the two degrees of freedom of one GPU. The history keeps the slowest: 9.9, 10, 10, whose logarithms -0.01005, 0, 0
    have the standard deviation 0.01005 / sqrt(3) = 0.580 %.
    """
    (floor,) = floors(per_gpu({"gpu-1": [(10.0, 9.9), (10.0, 10.0), (10.0, 10.1)]}))
    assert [(node.node, (node.gpu or "")[:5]) for node in floor.nodes] == [("gpu-1", "GPU 0"), ("gpu-1", "GPU 1")]
    assert [node.samples_per_second for node in floor.nodes] == pytest.approx([10.0, 10.0])
    assert [node.between.sd_pct for node in floor.nodes if node.between] == pytest.approx([0, 1.0], abs=0.001)
    assert floor.between is not None
    assert (floor.between.sd_pct, floor.between.degrees_of_freedom) == (pytest.approx(0.707, abs=0.001), 2)
    assert floor.between_own is not None
    assert floor.between_own.sd_pct == pytest.approx(0.580, abs=0.001)
    assert (floor.num_nodes, floor.nodes_sd_pct) == (1, None)


def test_what_a_pod_does_to_all_of_its_gpus_is_noise_once_and_not_once_for_each_gpu() -> None:
    """Round 2 is 1 % faster on all GPUs of one of two nodes. With one GPU of each node: residuals of ln(1.01) / 4 four
    times, one degree of freedom: 0.4975 %. All four GPUs as if they were nodes would give 0.406 % from three.
    """
    (floor,) = floors(per_gpu({"gpu-1": [(10.0, 10.0)] * 2, "gpu-2": [(10.0, 10.0), (10.1, 10.1)]}))
    assert floor.between is not None
    assert (floor.between.sd_pct, floor.between.degrees_of_freedom) == (pytest.approx(0.4975, abs=0.0001), 1)


def test_gpus_of_three_nodes_differ_by_themselves() -> None:
    """Six means: 9.9, 10.1 on each of three nodes: ln differs by 0.02, each 0.01 from the mean: sqrt(6e-4 / 5) %."""
    (floor,) = floors(per_gpu({f"gpu-{i}": [(9.9, 10.1)] * 5 for i in (1, 2, 3)}))
    assert floor.nodes_sd_pct == pytest.approx(1.0955, abs=0.001)


def test_the_tables_and_the_headline_name_gpus_where_gpus_were_measured() -> None:
    campaign = measured(per_gpu({f"gpu-{i}": [(10.0, 10.1)] * 5 for i in (1, 2, 3)}))
    noise, actual = noise_tables(campaign)
    assert noise.names[:2] == ("node", "GPU")
    assert [row.texts[0] for row in noise.rows] == ["gpu-1"] * 2 + ["gpu-2"] * 2 + ["gpu-3"] * 2 + ["all nodes"]
    assert {len(row.texts) for row in noise.rows} == {len(noise.names)}
    assert "one round on 3 nodes detects a GPU that is" in (headline(campaign) or "")
    assert "A GPU that is slower by this much" in actual.notes[0]


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("floor", "words"),
    [
        (floor_of(0.3), "samples/s is sensible: with one round on 4 nodes chance alone reaches 1.26 %."),
        (floor_of(0.3, 1, None), "samples/s is sensible: with one round on 4 nodes chance alone reaches 1.26 %."),
        (floor_of(2.0), "too tight: with one round on 4 nodes chance alone reaches 8.11 %; take 5 rounds, or raise it"),
        (floor_of(9.0), "too tight: with one round on 4 nodes chance alone reaches 31.66 %; 5 rounds are not enough"),
        (floor_of(0.1, 4, 0.8), "The nodes differ by 0.80 % (standard deviation) beyond the noise of their runs"),
        (floor_of(0.1, 1, None), "The difference between good nodes is unknown: it needs three nodes"),
        (floor_of(0.1, between=None), "cannot be judged: no node ran twice"),
    ],
)
def test_the_noise_floor_beside_the_limits(floor: Floor, words: str) -> None:
    assert any(words in sentence for sentence in noise_advice(floor, {})), [*noise_advice(floor, {})]


class Fixed(Floor):
    """Chance reaches `chance[rounds]` percent, whatever the nodes."""

    chance: dict[int, float]

    def detectable_pct(self, rounds: int, peers: int | None, *, in_19_of_20: bool = False) -> float | None:
        return self.chance[rounds]


@pytest.mark.parametrize(
    ("chance", "words"),
    [
        ({1: 5.0}, "is sensible"),
        ({1: 5.1, 2: 5.0, 3: 4.0, 5: 3.0}, "take 2 rounds, or raise it to ±5.5 %"),  # with two it just reaches 5 %
    ],
)
def test_a_limit_that_chance_just_reaches_is_sensible(chance: dict[int, float], words: str) -> None:
    floor = Fixed.model_validate(floor_of(0.3).model_dump() | {"chance": chance})
    assert words in next(noise_advice(floor, {"samples_per_second_tolerance_pct": 5.0}))


def test_fewer_than_three_nodes_are_advised_as_if_they_were_four() -> None:
    """Of two nodes none can be judged, so nothing could be said of their limits."""
    assert [num_nodes(floor_of(0.3, nodes)) for nodes in (1, 2, 3, 8)] == [4, 4, 3, 8]


def test_the_limits_are_those_of_the_campaign() -> None:
    params = {"samples_per_second_tolerance_pct": 1.0, "memory_tolerance_pct": None}
    assert "The limit of ±1.0 % for samples/s is too tight" in next(noise_advice(floor_of(0.3), params))


# --- reports ----------------------------------------------------------------------------------------------------------


def test_the_tables(golden: Golden) -> None:
    campaign = measured(fleet(NOISY))
    text = "\n\n".join(f"### {content.title}\n\n{table(content)}" for content in noise_tables(campaign))
    golden("noise-floor.md", f"{headline(campaign)}\n\n{text}")


def test_a_campaign_that_measures_the_noise_says_so_first() -> None:
    campaign = measured(fleet(NOISY))
    text = verdict(campaign)
    assert text.startswith("Equal runs differ by 0.1")
    assert text.endswith("20 of 20 runs gave a figure.")
    assert "How much equal runs differ here" in benchmark_report(campaign)


def test_a_nightly_check_has_no_such_tables_and_one_that_was_repeated_has() -> None:
    nightly = campaigns.make_campaign(fleet({"gpu-1": (10.0, 10.1, 9.9)}))
    assert not list(noise_tables(nightly))
    assert list(noise_tables(campaigns.make_campaign(fleet(NOISY))))


def test_the_noise_of_the_published_a_a_campaign() -> None:
    """Five runs on one H200: 16.155, 16.132, 16.121, 16.139, 16.148 samples/s, whose standard deviation is 0.083 %."""
    from upath import UPath

    folder = GOLDEN_DIR.parents[1] / "docs/results/campaigns/h200-aa-2026-11-21/summary"
    campaign = read_campaign(UPath(folder / "verdict.json"))
    (shown,) = [section for section in comparison_sections(campaign) if section.anchor == "noise"]
    assert shown.tables[0].rows[0].texts[3] == "0.08 %"
    assert "The limit of ±5.0 % for samples/s is sensible" in shown.tables[0].notes[1]


def test_nodes_with_more_runs_owe_less_of_their_difference_to_chance() -> None:
    """Three nodes 1 % apart: variance 1e-4. One run's 0.005^2 = 2.5e-5 times the mean of
    1/1, 1/1 and 1/4, which is 0.75: sqrt(1e-4 - 1.875e-5) = 0.90139 %. The median of those would be 1.
    """
    rates = [[Run(r, math.exp(log), ()) for r in range(1, k + 1)] for log, k in ((-0.01, 1), (0.0, 1), (0.01, 4))]
    assert _nodes_sd_pct(rates, Noise(0.005, 3)) == pytest.approx(0.90139, rel=1e-4)


def test_gpus_are_pooled_by_their_place_and_know_no_more_than_one_place_does() -> None:
    """First GPUs of a, b and c: logs 0 and 0.02, 0 and 0, 0 and 0: residuals +-0.01 less the round's +-0.00333. Their
    squares are 2 x (0.00667^2 + 2 x 0.00333^2) = 1.333e-4 over 2 degrees of freedom. Second GPUs of a and b: no
    scatter, 1 degree of freedom. Together sqrt(1.333e-4 / 3) = 0.667 %, with the degrees of freedom of the first place.
    """

    def unit(node: str, *logs: float) -> Any:
        return SimpleNamespace(node=node, rates=tuple(Run(r, math.exp(x), ()) for r, x in enumerate(logs, start=1)))

    still = (0.0, 0.0)
    units = [unit("a", 0.0, 0.02), unit("a", *still), unit("b", *still), unit("b", *still), unit("c", *still)]
    actual = _between(units)
    assert actual is not None
    assert (actual.sd, actual.degrees_of_freedom) == (pytest.approx(0.006667, rel=1e-3), 2)
    assert _between([unit("a", 0.0), unit("b", 0.0)]) is None
