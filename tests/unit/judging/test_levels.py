"""Known levels: the shipped ones follow from the committed results; a fleet's own are made, read and refused."""

from __future__ import annotations

from datetime import date
from importlib.resources import files
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from bench_image.contract.spec import Drill
from tests.builders import make_cpu_result, make_failed, make_result, on_gpus
from tests.unit.published import levels as published
from tests.unit.published.measured import run
from trainbench.core.verdicts import Level, LevelSource
from trainbench.judging.levels import (
    NO_LEVELS,
    KnownLevel,
    LevelsError,
    level_of,
    levels_toml,
    load_levels,
    made_levels,
    merged,
    parse_levels,
    unread_levels,
    work_of,
)
from trainbench.judging.node_runs import by_gpu

AA = "aa-h200-2026-11-22"
AS_OF = date(2026, 11, 23)


def made(*results: RunResult) -> tuple[KnownLevel, ...]:
    return made_levels(results, "0.1.0", AS_OF)


def on_gpu(uuid: str, rate: float, **fields: Any) -> RunResult:
    return on_gpus(make_result("node-1", rate, **fields), uuid)


def test_the_shipped_levels_are_those_of_the_results_that_they_name() -> None:
    text = files("trainbench.judging").joinpath("levels.toml").read_text()

    assert text.endswith(levels_toml(published.levels()))
    assert [(level.strategy, level.num_runs, level.num_gpus) for level in parse_levels(text, "it")] == [
        ("single", 14, 5),
        ("ddp", 7, 4),
        ("single", 6, 5),
    ]


def test_both_works_of_the_nightly_check_on_an_h200_have_a_shipped_level() -> None:
    """Of `independent` each GPU by itself, of `ddp` all together: each run lies within the band."""
    shipped = load_levels(LevelSource.SHIPPED, None).known
    night, ddp, single = (
        run(f"{AA}/{name}") for name in ("nights/night-independent-1", "ddp/night-ddp-1", "presets/tuned-1")
    )
    parts = [*by_gpu(night).values(), ddp, single]

    assert len(parts) == 4
    for part in parts:
        level, rate = level_of(part, shipped), part.performance.samples_per_second
        assert level is not None
        assert rate is not None
        assert abs(100 * (rate / level.expected_of(part) - 1)) < level.band_pct
    assert level_of(night, shipped) == level_of(parts[0], shipped)
    assert level_of(run(f"{AA}/ddp-512/night-ddp-1"), shipped) is None
    assert level_of(run(f"{AA}/presets/as-users-run-1"), shipped) is None


def test_how_long_a_run_is_measured_does_not_change_its_work_and_what_it_computes_does() -> None:
    assert work_of(make_result(warmup_steps=3)) == work_of(make_result())
    assert work_of(make_result(seq_length=1024)) != work_of(make_result())


def test_a_level_is_the_median_over_the_gpus_of_their_medians() -> None:
    """GPU a: 10, 10.2 and 10.4; b: 9. The medians 10.2 and 9 have sqrt(10.2 * 9) = 9.581 between them. Their logarithms
    differ by 12.52 %: a standard deviation of 8.85 %, and 1.96 % between the runs of a: 9.06 %, three of which are the
    band.
    """
    runs = [on_gpu("a", rate, round=r) for r, rate in enumerate((10.0, 10.4, 10.2), start=1)]
    (level,) = made(*runs, on_gpu("b", 9.0))

    assert level.samples_per_second == pytest.approx(9.581, abs=0.001)
    assert level.spread_pct == pytest.approx(9.06, abs=0.02)
    assert level.band_pct == 27.2
    assert (level.num_runs, level.num_gpus, level.as_of, level.origin) == (4, 2, AS_OF, "own")
    assert level.software["torch"]


def test_gpus_with_more_runs_weigh_more_in_the_scatter_of_runs() -> None:
    """a: 10 and 10; b: 10, 10 and 11, whose logarithms have the variance ln(1.1)^2 / 3 with two degrees of freedom of
    three: sqrt(2 / 3) * ln(1.1) / sqrt(3) = 4.49 %.
    """
    runs = [on_gpu("a", 10.0, round=r) for r in (1, 2)]
    runs += [on_gpu("b", rate, round=r) for r, rate in enumerate((10.0, 10.0, 11.0), start=1)]
    (level,) = made(*runs)
    assert level.spread_pct == pytest.approx(4.49, abs=0.01)


def test_of_three_gpus_the_standard_deviation_counts() -> None:
    """10, 10 and 9: ln(10 / 9) / sqrt(3) = 6.08 %; their median deviation is 0."""
    (level,) = made(on_gpu("a", 10.0), on_gpu("b", 10.0), on_gpu("c", 9.0))
    assert level.spread_pct == pytest.approx(6.08, abs=0.01)


def test_the_band_is_four_percent_at_least_and_one_slow_gpu_of_many_does_not_widen_it() -> None:
    (level,) = made(*(on_gpu(f"gpu-{i}", 10.0 + i / 1000) for i in range(5)), on_gpu("slow", 5.0))

    assert level.samples_per_second == pytest.approx(10.0015, abs=0.001)
    assert level.band_pct == 4.0


def test_the_rate_is_that_of_one_gpu() -> None:
    """20 samples/s of two GPUs together are 10 each."""
    together = make_result(samples_per_s=20.0, strategy="ddp", gpus_per_node=2)
    (level,) = made(together)

    assert (level.samples_per_second, level.gpus, level.expected_of(together)) == (10.0, 2, 20.0)
    assert ", ddp on 2 GPUs, " in level.description
    assert ", single, " in made(make_result())[0].description
    large = level.model_copy(update={"samples_per_second": 12345.6})
    assert "12,346 samples/s" in large.description  # not 1.235e+04


def test_failed_drilled_and_shared_runs_and_those_on_a_cpu_make_no_level() -> None:
    drilled, shared = make_result(drill=Drill(slowdown_pct=20)), make_result(num_other_processes=1)
    assert made(make_failed("node-1"), drilled, shared, make_cpu_result("node-1")) == ()


def test_another_gpu_or_another_work_has_no_level() -> None:
    (level,) = made(make_result())

    assert level_of(make_result(round=2), [level]) == level
    assert level_of(make_result(gpu_name="NVIDIA A10"), [level]) is None
    assert level_of(make_result(seq_length=1024), [level]) is None


def test_the_fleet_s_own_levels_come_first_and_only_where_they_are_wanted() -> None:
    (own,) = (level.model_copy(update={"samples_per_second": 30.0}) for level in published.levels()[:1])
    text = levels_toml([own])

    with_own = load_levels(LevelSource.OWN, text).known
    assert [level.origin for level in with_own] == ["own", "shipped", "shipped", "shipped"]
    assert level_of(run(f"{AA}/presets/tuned-1"), with_own) == own
    assert load_levels(LevelSource.SHIPPED, text) == load_levels(LevelSource.OWN, None)
    assert load_levels(LevelSource.NONE, text) == NO_LEVELS


def test_own_levels_that_cannot_be_read_cost_themselves_only() -> None:
    levels = load_levels(LevelSource.OWN, "[[level")

    assert levels.known == load_levels(LevelSource.SHIPPED, None).known
    (finding,) = unread_levels(levels, "night-1")
    assert (finding.level, finding.item) == (Level.WARNING, "night-1")
    assert finding.cause == levels.fault
    assert "levels.toml of the store" in finding.cause
    assert unread_levels(load_levels(LevelSource.OWN, None), "night-1") == ()


def test_what_is_written_is_read_again_and_a_newer_level_replaces_an_older() -> None:
    (level,) = made(make_result())
    named = level.model_copy(update={"accepted_by": 'ada "the" admin 🙂', "files": ("night-1",)})
    newer = named.model_copy(update={"samples_per_second": 11.0})

    assert parse_levels(levels_toml([named]), "x") == (named,)
    assert merged([*published.levels(), named], [newer]) == (*published.levels(), newer)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "band_pct = 4.0",
            "band_pct = -3",
            ["fleet.toml, level 1", "band_pct", "greater than 0", "got -3"],
        ),
        ("samples_per_second = 9.5", "samples_per_second = nan", ["samples_per_second", "finite number"]),
        ("num_gpus = 1", "num_gpus = 1\nlimit = 3", ["limit", "not permitted"]),
        ('work = "', 'work = "Z', ["work", "pattern"]),
        ("[[level]]", "[[levels]]", ["has no level", "[[level]]"]),
        ("[[level]]", "level = 3\n[x]", ["has no level"]),
        ("[[level]]", "[[level", ["is no TOML"]),
    ],
)
def test_a_wrong_value_is_refused_with_its_row_what_is_allowed_and_what_to_do(
    old: str, new: str, words: list[str]
) -> None:
    text = levels_toml(made(make_result()))
    assert old in text
    with pytest.raises(LevelsError) as refused:
        parse_levels(text.replace(old, new), "fleet.toml")

    assert [word for word in words if word not in str(refused.value)] == []


def test_two_levels_of_one_gpu_and_work_are_refused() -> None:
    text = levels_toml(made(make_result(), make_result(gpu_name="NVIDIA A10")))
    with pytest.raises(LevelsError, match="two levels of NVIDIA H200 at work"):  # the first of them is named
        parse_levels(text + text, "fleet.toml")
