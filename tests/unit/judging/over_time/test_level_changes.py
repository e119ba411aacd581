"""Dated changes: since when, by how much, and what else changed then; once for all nodes that it happened to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.spec import Drill
from tests.builders import STARTED_AT, make_failed, make_result
from trainbench.core.verdicts import Finding, Level, Tolerances
from trainbench.judging.over_time import level_changes
from trainbench.judging.over_time.level_changes import find, level_change_findings, series_of
from trainbench.judging.over_time.node_history import NodeRecord, records_of
from trainbench.judging.over_time.renames import find as find_renames
from trainbench.judging.over_time.renames import names, rename_findings
from trainbench.results.setups import Setup, change_phrases, new_gpus

OLD = Setup(driver="575.1", image="bench:1", kernel="5.15", libraries={"torch": "2.13"}, gpu_uuids=frozenset({"GPU-a"}))
NEW = OLD.model_copy(update={"driver": "580.95"})
LIMITS = Tolerances()


def at(night: int) -> datetime:
    return datetime(2026, 11, 1, 2, tzinfo=UTC) + timedelta(days=night - 1)


def point(night: int, rate: float, node: str = "gpu-1", setup: Setup = OLD, **fields: object) -> NodeRecord:
    values = {
        "campaign_id": f"night-{night}", "at": at(night), "node": node, "fingerprint": "work", "setup": setup,
        "gpu_name": "NVIDIA H200", "samples_per_second": rate, "temperature_c": 60.0,
    }  # fmt: skip
    return NodeRecord(**values | fields)  # type: ignore[arg-type]


def slowed(node: str, on: int = 12, *, setup: Setup = NEW, after: float = 9.39, **fields: object) -> list[NodeRecord]:
    """20 nights at 10 samples/s, from night `on` at `after` with `setup`."""
    return [point(n, 10.0 if n < on else after, node, OLD if n < on else setup, **fields) for n in range(1, 21)]


def changes_of(points: Sequence[NodeRecord]) -> tuple[Finding, ...]:
    series = series_of(points)
    return level_change_findings(find(series, LIMITS), series)


def test_a_slowdown_is_dated_with_what_was_changed_then() -> None:
    """9.39 / 10 - 1 = -6.1 %; 9 nights at it (12 to 20), 11 before."""
    (finding,) = changes_of(slowed("gpu-1"))
    assert (finding.category, finding.subject, finding.level) == ("step_slower", "gpu-1", Level.WARNING)
    assert finding.summary == "is 6.1 % slower since 12 Nov 2026, when the driver went from 575.1 to 580.95"
    assert finding.measured == "9.390 samples/s, median of 9 campaigns"
    assert finding.expected == "10.00 samples/s, median of the 11 before"
    assert finding.resolution.startswith("undo this change on it and run the check again")


def test_several_changes_are_all_reported() -> None:
    both = NEW.model_copy(update={"libraries": {"torch": "2.14"}, "kernel": "6.8"})
    (finding,) = changes_of(slowed("gpu-1", setup=both))
    assert finding.summary.endswith(
        "when the driver went from 575.1 to 580.95, the kernel went from 5.15 to 6.8 and torch went from 2.13 to 2.14"
    )


def test_a_change_without_a_recorded_cause_says_so() -> None:
    (finding,) = changes_of(slowed("gpu-1", setup=OLD))
    assert finding.summary == (
        "is 6.1 % slower since 12 Nov 2026; no change of driver, image, kernel, VBIOS, power limit, pod template or "
        "libraries is recorded then"
    )
    assert finding.resolution.startswith("ask what was done to this node then")


def test_a_change_of_many_nodes_is_reported_once_with_its_range() -> None:
    """8.99 / 9.58 - 1 = -6.16 %, 9.39 / 10 - 1 = -6.1 %, 9.42: -5.8 %."""
    (finding,) = changes_of([*slowed("gpu-1"), *slowed("gpu-2", after=9.42), *slowed("gpu-10")])
    assert finding.subject == "gpu-1, gpu-2 and gpu-10"
    assert finding.summary == (
        "are 5.8 to 6.1 % slower since 12 Nov 2026, when the driver went from 575.1 to 580.95; so are all nodes that "
        "got this change"
    )
    assert finding.resolution.startswith("undo this change on one of them")


def test_nodes_that_got_the_same_change_and_stayed_fast_speak_against_it() -> None:
    well = slowed("gpu-3", after=10.0)
    (finding,) = changes_of([*slowed("gpu-1"), *slowed("gpu-2"), *well])
    assert finding.summary.endswith("; it is not seen on 1 of the 3 nodes with this change")


def test_a_rolling_update_is_one_finding_with_the_span_of_its_nights() -> None:
    (finding,) = changes_of([*slowed("gpu-1", on=12), *slowed("gpu-2", on=14)])
    assert "since 12 Nov 2026 to 14 Nov 2026, when the driver" in finding.summary


def test_without_a_known_change_the_same_night_makes_one_finding_and_another_night_another() -> None:
    actual = changes_of([p for node, on in (("a", 12), ("b", 12), ("c", 15)) for p in slowed(node, on, setup=OLD)])
    assert [finding.subject for finding in actual] == ["a and b", "c"]


def test_works_of_one_node_are_one_finding() -> None:
    (finding,) = changes_of([*slowed("gpu-1"), *slowed("gpu-1", after=9.0, fingerprint="other")])
    assert finding.subject == "gpu-1"
    assert "is 6.1 to 10.0 % slower" in finding.summary


def test_a_gap_between_campaigns_leaves_the_date_open() -> None:
    series = [p for p in slowed("gpu-1") if not 8 <= p.at.day <= 11]
    assert "since some time between 7 Nov 2026 and 12 Nov 2026, when" in changes_of(series)[0].summary


def test_a_gpu_that_was_not_there_before_is_a_change_of_its_own() -> None:
    other = OLD.model_copy(update={"gpu_uuids": frozenset({"GPU-b"})})
    (finding,) = changes_of(slowed("gpu-1", setup=other))
    assert finding.summary.endswith("since 12 Nov 2026, when GPU-b had not been seen there before")


def test_faster_is_information_and_warmer_is_a_warning() -> None:
    (finding,) = changes_of(slowed("gpu-1", after=10.5))
    assert (finding.category, finding.level) == ("step_faster", Level.INFO)
    assert "is 5.0 % faster since 12 Nov 2026" in finding.summary
    warm = [point(n, 10.0 if n < 12 else 9.0, temperature_c=60.0 if n < 12 else 74.0) for n in range(1, 21)]
    assert changes_of(warm)[0].summary.endswith("; its GPU runs 14 °C warmer than it did")


def test_a_drift_is_reported_as_one() -> None:
    """10 to 9.5 in 20 nights."""
    (finding,) = changes_of([point(n, 10 - 0.5 * (n - 1) / 19) for n in range(1, 21)])
    assert (finding.category, finding.level) == ("drift_slower", Level.WARNING)
    assert finding.summary == "has become 5.0 % slower little by little since 1 Nov 2026: a drift, not a step"
    assert (finding.measured, finding.expected) == ("9.500 samples/s", "10.00 samples/s as on 1 Nov 2026")


def test_a_steady_node_is_not_reported() -> None:
    assert changes_of([point(n, 10.0 + 0.01 * (-1) ** n) for n in range(1, 21)]) == ()


# --- the first nights of an update, and the last of a change ----------------------------------------------------------


def nights(*rates: float, node: str = "gpu-1", updated_on: int = 99) -> list[NodeRecord]:
    return [point(n, rate, node, OLD if n < updated_on else NEW) for n, rate in enumerate(rates, start=1)]


def test_a_driver_that_costs_20_percent_on_all_nodes_is_seen_on_its_first_night() -> None:
    """8 / 10 - 1 = -20 %. The past of the new driver is empty; the level under the old one is known."""
    fleet = [p for node in ("a", "b", "c", "d") for p in nights(*[10.0] * 10, 8.0, node=node, updated_on=11)]
    (finding,) = changes_of(fleet)
    assert (finding.category, finding.level, finding.nodes) == ("step_slower", Level.WARNING, ("a", "b", "c", "d"))
    assert finding.summary == (
        "are 20.0 % slower since 11 Nov 2026, when the driver went from 575.1 to 580.95; so are all nodes that got "
        "this change"
    )
    assert finding.changes[0].model_dump() == {
        "node": "a", "fingerprint": "work", "before": 10.0, "after": 8.0, "limit_pct": 1.5,
    }  # fmt: skip


def test_a_pod_template_that_costs_20_percent_is_named_as_the_change() -> None:
    """The first template of an installation is a change as well."""
    before, after = (OLD.model_copy(update={"pod_template": name}) for name in ("none", "3f2a91c04b7d"))
    series = [point(n, 10.0 if n < 11 else 8.0, setup=before if n < 11 else after) for n in range(1, 12)]
    (finding,) = changes_of(series)
    assert finding.summary.startswith(
        "is 20.0 % slower since 11 Nov 2026, when the pod template went from none to 3f2a"
    )


def test_every_night_after_a_slow_driver_says_so_and_none_is_left_out() -> None:
    for num_since in range(1, 12):
        (finding,) = changes_of(nights(*[10.0] * 10, *[9.7] * num_since, updated_on=11))
        assert finding.summary.startswith("is 3.0 % slower since 11 Nov 2026, when the driver"), num_since


def test_a_driver_after_a_slowdown_is_reported_with_its_own_share() -> None:
    """At 9.6 for five nights, then 8.0 with the driver: 8 / 9.6 - 1 = -16.7 %."""
    (finding,) = changes_of(nights(*[10.0] * 10, *[9.6] * 5, 8.0, updated_on=16))
    assert finding.summary.startswith("is 16.7 % slower since 16 Nov 2026, when the driver went")


def test_an_update_that_changes_nothing_is_not_reported() -> None:
    assert changes_of(nights(*[10.0] * 10, 9.9, updated_on=11)) == ()


def test_before_five_nights_of_the_old_versions_an_update_is_not_judged() -> None:
    assert changes_of(nights(*[10.0] * 4, 8.0, updated_on=5)) == ()
    assert len(changes_of(nights(*[10.0] * 5, 8.0, updated_on=6))) == 1


def test_a_slowdown_long_after_an_update_is_not_blamed_on_it() -> None:
    (finding,) = changes_of(nights(*[10.0] * 8, *[9.0] * 3, updated_on=6))
    assert finding.summary.startswith("is 10.0 % slower since 9 Nov 2026; no change")


def test_a_node_that_is_well_again_tonight_is_not_called_slower_since_a_date() -> None:
    """Within half of the limit, 0.75 % of 10: that is over, though the last level is still that of the bad nights."""
    assert changes_of(nights(*[10.0] * 10, *[9.18] * 6, 9.93)) == ()
    assert len(changes_of(nights(*[10.0] * 10, *[9.18] * 6, 9.18))) == 1


def test_a_node_that_is_half_way_back_is_reported_with_the_rest() -> None:
    """9.5 / 10 - 1 = -5 % tonight, after six nights at -8.2 %; at -1 % nothing is left to tell."""
    (finding,) = changes_of(nights(*[10.0] * 10, *[9.18] * 6, 9.5))
    assert finding.summary.startswith("is 5.0 % slower since 11 Nov 2026")
    assert finding.measured == "9.500 samples/s, median of 1 campaign"
    assert changes_of(nights(*[10.0] * 10, *[9.18] * 6, 9.9)) == ()


def test_a_night_that_is_worse_yet_does_not_change_what_the_dated_change_cost() -> None:
    assert changes_of(nights(*[10.0] * 10, *[9.18] * 6, 8.0))[0].summary.startswith("is 8.2 % slower since 11 Nov 2026")


def test_a_driver_that_was_taken_back_is_of_today_since_that_night() -> None:
    series = [point(n, 10.0, setup=setup) for n, setup in enumerate((OLD, OLD, NEW, OLD), start=1)]
    assert level_changes._updated_at(series) == 3
    assert level_changes._updated_at([*series, point(5, 10.0)]) == 3


def test_a_small_slowdown_is_over_within_half_of_the_limit_and_not_before() -> None:
    """-2 %, and the limit is 1.5: tonight -1.2 % is still that change, -0.7 % is over."""
    assert changes_of(nights(*[10.0] * 10, *[9.8] * 6, 9.88))[0].summary.startswith("is 2.0 % slower since 11 Nov 2026")
    assert changes_of(nights(*[10.0] * 10, *[9.8] * 6, 9.93)) == ()


def test_a_drift_is_as_much_warmer_as_its_last_third_is_than_its_first() -> None:
    """60 degrees and one more each night: the middle of nights 1 to 7 is 63, of nights 15 to 21 it is 77."""
    (finding,) = changes_of([point(n, 10 - 0.5 * (n - 1) / 20, temperature_c=59.0 + n) for n in range(1, 22)])
    assert finding.category == "drift_slower"
    assert finding.summary.endswith("; its GPU runs 14 °C warmer than it did")


def test_a_drift_that_is_over_is_not_reported() -> None:
    drifting = [10 - 0.5 * n / 19 for n in range(20)]
    assert changes_of(nights(*drifting, 10.0)) == ()


# --- setups -----------------------------------------------------------------------------------------------------------


def test_what_was_not_recorded_is_no_change() -> None:
    assert change_phrases([OLD], Setup()) == ()
    assert change_phrases([Setup()], NEW) == ()
    assert change_phrases([OLD, Setup()], NEW) == ("the driver went from 575.1 to 580.95",)


def test_a_power_limit_and_a_vbios_are_changes_with_their_units() -> None:
    before, after = Setup(power_limit_w=700.0, vbios="96.00"), Setup(power_limit_w=500.0, vbios="96.01")
    assert change_phrases([before], after) == (
        "the VBIOS went from 96.00 to 96.01",
        "the power limit went from 700 W to 500 W",
    )


def test_a_gpu_seen_on_any_night_before_is_not_new() -> None:
    a, b = Setup(gpu_uuids=frozenset({"A"})), Setup(gpu_uuids=frozenset({"B"}))
    assert new_gpus([a, b, a], b) == ()
    assert new_gpus([a], b) == ("B",)
    assert new_gpus([Setup()], b) == ()


# --- points -----------------------------------------------------------------------------------------------------------


def test_the_points_of_a_campaign_are_medians_of_its_valid_runs() -> None:
    runs = [make_result(samples_per_s=rate, round=i) for i, rate in enumerate((9.0, 9.6, 9.2), start=1)]
    drill = make_result("node-2", drill=Drill(slowdown_pct=50))
    (actual,) = records_of([*runs, drill, make_failed("node-3")], STARTED_AT)
    assert (actual.node, actual.samples_per_second, actual.at) == ("node-1", 9.2, STARTED_AT)
    assert actual.setup.driver == "580.65.06"
    assert actual.setup.gpu_uuids == {"GPU-node-1-0"}


# --- renamed nodes ----------------------------------------------------------------------------------------------------


def test_a_node_under_a_new_name_is_recognised_by_its_gpus_and_keeps_its_trail() -> None:
    earlier = [point(n, 10.0, "gpu-7") for n in range(1, 12)]
    now = [point(12, 9.0, "gpu-3")]
    (rename,) = find_renames(now, earlier)
    assert (rename.node, rename.was, rename.until) == ("gpu-3", "gpu-7", at(11))
    assert rename.gpu_uuids == ("GPU-a",)
    (finding,) = rename_findings([rename], at(12))
    assert finding.summary.startswith("was gpu-7 until 11 Nov 2026: it has the same GPUs")
    (series,) = series_of([*earlier, *now], names([rename])).values()
    assert len(series) == 12


def test_a_rename_is_stored_for_good_and_reported_for_a_week() -> None:
    earlier = [point(n, 10.0, "gpu-7" if n < 5 else "gpu-3") for n in range(1, 20)]
    (rename,) = find_renames([point(20, 10.0, "gpu-3")], earlier)
    assert rename.until == at(4)
    assert rename_findings([rename], at(20)) == rename_findings([rename], at(12)) == ()
    assert len(rename_findings([rename], at(11))) == 1


def test_names_that_are_used_side_by_side_are_two_nodes() -> None:
    earlier = [point(n, 10.0, node) for n in range(1, 5) for node in ("gpu-3", "gpu-7")]
    assert find_renames([point(5, 10.0, "gpu-3")], earlier) == ()
    assert find_renames([point(5, 10.0, "gpu-3"), point(5, 10.0, "gpu-7")], earlier) == ()
    once = [point(4, 10.0, node) for node in ("gpu-3", "gpu-7")]
    assert find_renames([point(5, 10.0, "gpu-3")], once) == ()


def test_without_uuids_nothing_is_guessed() -> None:
    nobody = OLD.model_copy(update={"gpu_uuids": frozenset()})
    assert find_renames([point(5, 10.0, "gpu-3", nobody)], [point(4, 10.0, "gpu-7", nobody)]) == ()


def on_one_day(*gaps_days: int) -> Any:
    since = datetime(2026, 11, 12, 2, 0, tzinfo=UTC)
    return [SimpleNamespace(since=since, last_before=since - timedelta(days=days)) for days in gaps_days]


def test_the_node_that_was_measured_most_lately_before_dates_a_change() -> None:
    """One node was measured the night before, another nine days before: it was that night."""
    assert level_changes._when(on_one_day(9, 1)) == "12 Nov 2026"
    assert level_changes._when(on_one_day(9, 3)) == "some time between 9 Nov 2026 and 12 Nov 2026"


@pytest.mark.parametrize(
    ("warmer", "phrase"), [((5.0,), "5 °C warmer"), ((-6.0, -5.0), "6 °C cooler"), ((4.9,), ""), ((9.0, -9.0), "")]
)
def test_a_temperature_is_reported_from_five_degrees_on_and_in_one_direction(
    warmer: tuple[float, ...], phrase: str
) -> None:
    changes: Any = [SimpleNamespace(warmer_c=c) for c in warmer]
    assert level_changes._temperature(changes) == (f"; its GPU runs {phrase} than it did" if phrase else "")
