"""COST_REPORT.md: the cost of the campaign and of the measured work, with the prices used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from bench_image.contract.result import RunResult
from bench_image.contract.work import Device
from trainbench.comparison.entries import MeasuredRuns
from trainbench.core.formats import NA, count, figure, moment, plural, usd
from trainbench.core.grouping import grouped
from trainbench.core.known_values import known_sum, sum_of_all
from trainbench.core.markdown import escape
from trainbench.core.tables import RESULT_LINK, Table, integer, make_table, median_run, short_names, text
from trainbench.figure_catalogue import run_figures
from trainbench.figure_catalogue.table_figures import EXAMPLE, time_columns
from trainbench.prices.run_cost import NOT_PRICED, RunCost
from trainbench.reporting import configuration_tables, recommendations
from trainbench.reporting.document import Lines, Section, Text, markdown
from trainbench.reporting.recommendations import SAMPLES
from trainbench.reporting.verdict_text import drill_sentence
from trainbench.reporting.work_names import work_name
from trainbench.results.campaign import Campaign
from trainbench.results.readings import gpu_name, is_measured, rank_noun

MISSING = "Set usd_per_gpu_hour, or add the GPU to the price table with its source and date."

Priced = tuple[RunResult, RunCost]


def cost_report(campaign: Campaign) -> str:
    """The report as Markdown. Without prices it is a sentence, instead of tables whose cells are all empty."""
    title, told = f"# Cost report: {escape(campaign.title)}", escape(summary(campaign))
    foot = f"Campaign {campaign.campaign_id}, finished {moment(campaign.finished_at)}."
    if _is_cpu_trial(campaign):
        why = "A CPU has no price, unless usd_per_gpu_hour gives one: it counts per process and hour."
        return f"{title}\n\n{told} {why}\n\n{escape(foot)}\n"
    head = [title, told]
    if slowed := drill_sentence(campaign):
        head.append(f"**{escape(slowed)}** The cost of its runs is real; their prices per sample are meaningless.")
    tables = (
        work_table(campaign), prices_table(campaign), nodes_table(campaign),
        *configuration_tables.figures(campaign), runs_table(campaign),
    )  # fmt: skip
    sections = [Section(table.title, [table]) for table in tables if table.rows]
    if larger := recommendations.tables(campaign):
        sections.append(Section("When more GPUs pay", larger))
    if missing := missing_prices(campaign):
        sections.append(Section("Missing prices", [Lines(missing)]))
    sections.append(Section("How it is computed", [Lines(FORMULAS), Text(foot)]))
    run_ids = [result.spec.identity.run_id for result in campaign.results]
    links = {run_id: RESULT_LINK.format(run_id=run_id) for run_id in run_ids}
    return "\n\n".join([*head, *markdown(sections, links)]) + "\n"


FORMULAS = (
    "GPU-hours: from process start to result, every GPU of the run, start-up included.",
    "Cost of a run: GPU-hours x price per GPU-hour.",
    "Per 1K samples: price per GPU-hour x GPUs / (samples/s x 3600) x 1000, start-up left out; per 1M tokens likewise.",
    "Medians are over the runs of one group that measured a throughput, failed runs and drills left out.",
)


def summary(campaign: Campaign) -> str:
    """The campaign's cost in one sentence, re-runs and failed runs included: "This campaign cost $0.21: 4 runs, 0.35
    GPU-hours".
    """
    total_usd, gpu_hours = (known_sum(getattr(c, name) for c in campaign.costs) for name in ("run_usd", "gpu_hours"))
    num_unknown = sum(cost.run_usd is None for cost in campaign.costs)
    runs = count(len(campaign.costs), "run")
    spent = runs if gpu_hours is None else f"{runs}, {figure(gpu_hours, 3)} GPU-hours"
    if _is_cpu_trial(campaign):
        return f"{NOT_PRICED} ({runs})."
    if total_usd is None:
        why = "has a price" if all(cost.usd_per_gpu_hour is None for cost in campaign.costs) else "has a known cost"
        return f"The cost of this campaign is unknown: no run {why} ({spent})."
    more = f"; {count(num_unknown, 'run')} without a known cost not included" if num_unknown else ""
    return f"This campaign cost {usd(total_usd)}: {spent}{more}."


def work_table(campaign: Campaign) -> Table:
    """For each measured work on a kind of GPU the price of its samples and tokens, and what SAMPLES of them take and
    cost; none of a trial on a CPU, which costs nothing.
    """
    measured = [] if _is_cpu_trial(campaign) else [pair for pair in _priced(campaign) if is_measured(pair[0])]
    groups = grouped(((run.spec.identity.group_id, gpu_name(run)), (run, cost)) for run, cost in measured)
    rows = []
    for of_group in groups.values():
        results, costs = zip(*of_group, strict=True)
        rows.append((work_name(campaign, results[0]), MeasuredRuns(results=results, costs=costs)))

    def example_s(row: tuple[str, MeasuredRuns]) -> float | None:
        rate = row[1].figure(run_figures.SAMPLES_PER_SECOND)
        return SAMPLES / rate if rate else None

    def example_usd(row: tuple[str, MeasuredRuns]) -> float | None:
        price = row[1].figure(run_figures.USD_PER_1000_SAMPLES)
        return None if price is None else price * SAMPLES / 1000

    return make_table(
        rows,
        (
            text("work", itemgetter(0)),
            integer(plural(rank_noun(campaign.results)), lambda row: row[1].results[0].spec.placement.world_size),
            integer("runs", lambda row: len(row[1].results)),
            run_figures.USD_PER_1000_SAMPLES.own(row=itemgetter(1)),
            run_figures.USD_PER_1M_TOKENS.own(row=itemgetter(1)),
            EXAMPLE.column(example_s, f"{SAMPLES:,} samples take"),
            EXAMPLE.column(example_usd, "they cost", write=usd),
        ),
        run_id=lambda row: median_run(row[1].results),
        title="Each work",
    )


def prices_table(campaign: Campaign) -> Table:
    used: Counter[tuple[str, float | None, str, str]] = Counter()
    for result, cost in _priced(campaign):
        on = "CPU" if result.spec.work.device is Device.CPU else gpu_name(result) or f"{NA}: GPU not reported"
        source = cost.price_source or (NOT_PRICED if cost.reason == NOT_PRICED else NA)
        used[on, cost.usd_per_gpu_hour, source, cost.price_as_of or NA] += 1
    return make_table(
        used.items(),
        (
            text("hardware", lambda item: item[0][0]),
            run_figures.USD_PER_GPU_HOUR.column(lambda item: item[0][1]),
            *time_columns(lambda item: item[0][1]),
            text("source", lambda item: item[0][2]),
            text("as of", lambda item: item[0][3]),
            integer("runs", lambda item: item[1]),
        ),
        title="Prices used",
    )


def nodes_table(campaign: Campaign) -> Table:
    """The cost of checking each node, re-runs included. The nodes of a gang share its cost equally."""
    by_node: dict[str, list[Priced]] = {}
    for result, cost in _priced(campaign):
        for node in result.spec.identity.nodes:
            by_node.setdefault(node, []).append((result, cost))
    notes = (
        ["A gang's cost is shared evenly by its nodes."] if any(r.spec.identity.peers for r in campaign.results) else []
    )
    if any(cost.run_usd is None for cost in campaign.costs):
        notes.append("n/a: at least one run of the node has no known cost.")
    return make_table(
        by_node.items(),
        (
            text("node", lambda item: item[0]),
            integer("runs", lambda item: len(item[1])),
            run_figures.GPU_HOURS.column(
                lambda item: sum_of_all(_of_one_node(run, cost.gpu_hours) for run, cost in item[1])
            ),
            run_figures.RUN_USD.column(
                lambda item: sum_of_all(_of_one_node(run, cost.run_usd) for run, cost in item[1])
            ),
        ),
        run_id=lambda item: median_run(result for result, _ in item[1]),
        notes=tuple(notes),
        title="Each node",
    )


def runs_table(campaign: Campaign) -> Table:
    names = short_names(campaign.results, campaign.labels)
    return make_table(
        _priced(campaign),
        (
            text("run id", lambda pair: names[pair[0].spec.identity.run_id]),
            integer(plural(rank_noun(campaign.results)), lambda pair: pair[0].spec.placement.world_size),
            run_figures.GPU_HOURS.column(lambda pair: pair[1].gpu_hours),
            run_figures.RUN_USD.column(lambda pair: pair[1].run_usd),
            run_figures.USD_PER_1000_SAMPLES.column(lambda pair: pair[1].usd_per_1000_samples),
            run_figures.USD_PER_1M_TOKENS.column(lambda pair: pair[1].usd_per_1m_tokens),
            text("remark", lambda p: "; ".join(filter(None, ["drill" if p[0].spec.drill else "", p[1].reason or ""]))),
        ),
        run_id=lambda pair: pair[0].spec.identity.run_id,
        title="Each run",
    )


def missing_prices(campaign: Campaign) -> tuple[str, ...]:
    """The reasons why figures are missing, each once, with the setting that helps."""
    reasons = grouped((cost.reason, cost.run_id) for cost in campaign.costs if cost.reason)
    lines = [f"{count(len(runs), 'run')}: {why}" for why, runs in reasons.items()]
    unpriced = any(cost.usd_per_gpu_hour is None and cost.reason != NOT_PRICED for cost in campaign.costs)
    return (*lines, *([MISSING] if unpriced else []))


def _is_cpu_trial(campaign: Campaign) -> bool:
    return bool(campaign.costs) and all(cost.reason == NOT_PRICED for cost in campaign.costs)


def _priced(campaign: Campaign) -> Sequence[Priced]:
    return list(zip(campaign.results, campaign.costs, strict=True))


def _of_one_node(result: RunResult, amount: float | None) -> float | None:
    return None if amount is None else amount / result.spec.placement.nodes
