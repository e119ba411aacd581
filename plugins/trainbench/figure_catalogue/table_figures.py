"""The figures that tables compute from several runs: node checks, comparisons, money and the cost report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trainbench.core.formats import duration, percent, usd
from trainbench.core.tables import Column
from trainbench.figure_catalogue.figure import Figure
from trainbench.prices.quote import HOURS_PER_DAY, HOURS_PER_MONTH, HOURS_PER_WEEK, price_of_time

R = TypeVar("R")

# fmt: off
PER_GPU = Figure("per_gpu", "per GPU", "1/s", "performance.tokens_per_second, spec",
    "tokens/s / (nodes x GPUs per node)", "trainbench.reporting.comparison_sections._strategies",
    "test_strategy_tables.py::test_equal_work_is_ranked_within_one_number_of_gpus", also=("per process",))
FORMULA_GB = Figure("formula_gb", "formula GB", "1e9 bytes", "spec",
    "weights, gradients, optimizer state and activations by formula (docs/internals/sizing.md)",
    "trainbench.comparison.hardware_survey.predicted_gb",
    "test_memory_estimate.py::test_the_memory_of_full_training_adds_up")
FULL_GB = Figure("full_gb", "full GB", "1e9 bytes, %", "memory.peak_during_training",
    "100 x (1 - memory / that of full training of the same work); measured where it ran, else by formula",
    "trainbench.comparison.hardware_survey.saved_memory",
    "test_hardware_survey.py::test_memory_is_saved_against_full_on_equal_work_only", also=("saved", "full is"))
DEVIATION = Figure("deviation", "deviation", "%", "verdict.json: groups.nodes.comparisons.deviation",
    "100 x (value - expected) / expected; value: the mean of the planned rounds' median and of each re-run, less what "
    "the control changed, without a round that chance does not explain; temperature: degrees C apart",
    "trainbench.judging.expectations.compare_rate", "test_judged_figures.py::test_the_deviation_by_hand",
    read="(value - expected) / expected. A node's value is the median of its runs; with re-runs their mean.",
    also=("against *",), write=percent)
EXPECTED = Figure("expected", "median of the peers", "as the value", "verdict.json: groups.nodes.comparisons.expected",
    "against its peers: the median of the other nodes; against its own past: that of its first ten nights, changed "
    "as its peers changed tonight; against the known level: that of the GPU",
    "trainbench.judging.expectations.by_peers", "test_judged_figures.py::test_the_median_of_the_peers_by_hand",
    read=(
        "What a node should make: its peers' median, so that a slow node cannot pull its own expectation down; the "
        "median of the first ten nights of its GPUs; the level of its kind of GPU."
    ))
SPREAD = Figure("spread", "spread", "%", "verdict.json: groups.spread_pct",
    "100 x (fastest - slowest node) / median of the nodes", "trainbench.judging.judge.verdict",
    "test_judged_figures.py::test_the_spread_by_hand", read="(fastest node - slowest node) / median of the nodes.")
NOISE = Figure("noise", "noise", "%", "verdict.json: groups.noise_pct",
    "of one run's ln(samples/s): the larger standard deviation of that between runs and that within runs",
    "trainbench.judging.noise.pooled", "test_noise.py::test_the_larger_estimate_counts",
    read="Standard deviation of one run: the larger of the deviations between runs and between windows.")
NOISE_BETWEEN_RUNS = Figure("noise_between_runs", "between runs", "%", "performance.samples_per_second",
    "pooled standard deviation of ln(samples/s) over the runs of a node, without what a round does to all alike",
    "trainbench.judging.noise.between_runs", "test_noise.py::test_between_runs_without_what_a_round_does_to_all",
    read="Pooled standard deviation of the samples/s that one node shows from run to run.")
NOISE_WITHIN_RUNS = Figure("noise_within_runs", "within runs", "%", "performance.windows.samples_per_second",
    "the same over the windows of a run, pooled over the nodes", "trainbench.judging.noise.within_runs",
    "test_noise.py::test_within_runs_is_pooled_over_nodes_and_not_divided_by_the_windows")
NOISE_INTERVAL = Figure("noise_interval", "95 % interval", "%", "performance.samples_per_second",
    "standard deviation x sqrt(degrees of freedom / chi-squared quantiles of 97.5 % and 2.5 %)",
    "trainbench.comparison.noise_floor._spread", "test_noise_floor.py::test_one_node_s_noise_by_hand")
RANGE = Figure("range", "fastest − slowest", "%", "performance.samples_per_second",
    "100 x (fastest - slowest run of the node) / their median", "trainbench.comparison.noise_floor._node",
    "test_noise_floor.py::test_one_node_s_noise_by_hand")
SMALLEST_SLOWDOWN = Figure("smallest_slowdown", "* nodes", "%", "performance.samples_per_second",
    "smallest slowdown that differs from chance in 19 of 20 nights, from the noise, rounds and nodes "
    "(docs/internals/detection.md)", "trainbench.comparison.noise_floor.floors",
    "test_noise_floor.py::test_detectable_slowdown_by_hand", also=("own past",))
PLACE = Figure("place", "place", "1, %", "performance.tokens_per_second",
    "order by tokens/s within one number of GPUs; 100 x tokens/s / the fastest's",
    "trainbench.reporting.comparison_sections._strategies",
    "test_strategy_tables.py::test_equal_work_is_ranked_within_one_number_of_gpus", also=("of the fastest",))
PATTERN = Figure("pattern", "pattern", "text", "performance.tokens_per_second, memory.peak_during_training",
    "throughput and memory against the median of the strategies beside it",
    "trainbench.comparison.strategy_standings.traits_of",
    "test_strategy_standings.py::test_the_four_published_patterns",
    read="Throughput and memory against the median of the strategies beside it; medium: within 5 %.")
EXAMPLE = Figure("example", "* samples take", "s, USD", "performance.samples_per_second",
    "samples / (samples/s); x GPUs x price per GPU-hour / 3600", "trainbench.reporting.cost_report.work_table",
    "test_cost_report.py::test_ten_thousand_samples", also=("they cost", "time"), write=duration)
AGAINST_SMALLEST = Figure("against_smallest", "against the smallest size", "text, %", "performance.samples_per_second",
    "time saved and money added for the same samples", "trainbench.reporting.recommendations._against_base",
    "test_more_gpus.py::test_what_a_larger_size_saves_and_costs")
AGAINST_FIRST = Figure("against_first", "against the first", "x", "performance.tokens_per_second",
    "tokens/s / those of the row compared with", "trainbench.reporting.comparison_sections._presets",
    "test_preset_tables.py::test_the_same_job_with_another_execution_is_compared_and_the_execution_is_named")
SPEED_UP = Figure("speed_up", "speed-up", "x", "performance.samples_per_second, performance.tokens_per_second",
    "geometric mean over the rounds of rate / the baseline's rate in the same round",
    "trainbench.comparison.configurations.speed_up",
    "test_speedups.py::test_the_ratio_is_the_geometric_mean_over_the_rounds_that_both_have", also=("per token",))
RELATIVE_SPEED = Figure("relative_speed", "relative speed", "x", "performance.tokens_per_second",
    "tokens/s / those of the fastest GPU, or of the one that was named",
    "trainbench.comparison.hardware_survey.relative_speed",
    "test_hardware_survey.py::test_speed_is_relative_to_the_fastest_or_to_the_gpu_that_is_named")
SAVING = Figure("saving", "saving", "%", "cost.cost_per_1000_samples_usd",
    "100 x (baseline's cost - cost) / the baseline's", "trainbench.prices.quote.savings_pct",
    "test_run_cost.py::test_savings_against_the_baseline", also=("saving per token", "saving per sample"),
    write=percent)
PRICE_OF_TIME = Figure("price_of_time", "per day", "USD", "cost.usd_per_gpu_hour; price table",
    "price per GPU-hour x 24; per week x 168; per month x 730 (8,760 h a year / 12); of one GPU",
    "trainbench.prices.quote.price_of_time", "test_ownership.py::test_a_gpu_by_the_day_week_and_month_by_hand",
    also=("per week", "per month"), write=usd)
EPOCH = Figure("epoch", "1 epoch", "s, or as written", "performance.samples_per_second",
    "samples of an epoch (a parameter) / (samples/s)", "trainbench.reporting.survey_tables._speed",
    "test_hardware_survey.py::test_epoch_and_costs_follow_from_the_rate", write=duration)
BUDGET = Figure("budget", "*buys", "samples, GPUs", "cost.cost_per_1000_samples_usd; purchase prices",
    "budget / cost per sample of the cheapest measured GPU; or GPUs that the purchase prices allow",
    "trainbench.comparison.hardware_survey.purchase_price",
    "test_hardware_survey.py::test_a_budget_buys_what_the_cheapest_measured_gpu_makes_of_it",
    also=("which together do", "budget"))
RENT_OR_BUY = Figure("rent_or_buy", "purchase", "USD, h", "purchase prices; price table",
    "hours a month from which owning a GPU costs less than renting it",
    "trainbench.prices.quote.rent_or_buy", "test_ownership.py::test_break_even_by_hand",
    also=("pays above h a month", "choice"))
MONTH_CHANGE = Figure("month_change", "per 1K in *", "USD, %", "costs.json: works.last and .this and .change",
    "of a month's median price and median samples/s; change = 100 x (new - old) / old",
    "trainbench.cost.monthly_cost._work_month", "test_cost_trend.py::test_price_and_throughput_are_split_exactly",
    also=("in 2*", "change"), write=usd)
CHANGE_PARTS = Figure("change_parts", "by price", "USD", "costs.json: works.change",
    "difference of prices x mean GPU-hours per 1K samples of both months; difference of those x mean price",
    "trainbench.cost.monthly_cost.change", "test_cost_trend.py::test_price_and_throughput_are_split_exactly",
    also=("by throughput",), write=usd)
OTHER_PRICE = Figure("other_price", "against what is paid", "%, USD", "costs.json: prices",
    "against the month's cost / GPU-hours on that kind of GPU; its GPU-hours x the other price",
    "trainbench.cost.monthly_cost.other_prices", "test_other_prices.py::test_each_price_of_the_same_gpu_cheapest_first",
    also=("the month at this price",))
EQUAL_WORK = Figure("equal_work", "equal work", "text", "spec, chosen",
    "fingerprint of every field of the spec but names, places and how long was measured",
    "trainbench.comparison.entries.work_groups", "test_comparable.py::test_unequal_work_is_apart_and_says_in_what",
    read="Model, data, batch, dtypes, optimizer, checkpointing are equal, by fingerprint; else no ranking.")
LEVEL = Figure("level", "level", "text", "performance.windows, performance.samples_per_second",
    "two rates no further apart than chance brings them: by their runs and windows, and by 0.5 % as of three runs",
    "trainbench.comparison.entries.is_tie",
    "test_strategy_standings.py::test_ties_within_the_noise_are_named_and_share_the_first_place",
    read="So close together that chance could swap their order, by what runs and windows differ by.")
# fmt: on
TABLE_FIGURES = tuple(each for each in list(globals().values()) if isinstance(each, Figure))


def time_columns(of: Callable[[R], float | None]) -> tuple[Column[R], ...]:
    """The price of one GPU for a day, a week and a month. `of`: from a row to its price per GPU-hour."""

    def column(heading: str, hours: float) -> Column[R]:
        return PRICE_OF_TIME.column(lambda row: price_of_time(of(row), hours), heading)

    return (column("per day", HOURS_PER_DAY), column("per week", HOURS_PER_WEEK), column("per month", HOURS_PER_MONTH))
