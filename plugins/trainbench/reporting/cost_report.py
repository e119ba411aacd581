"""COST_REPORT.md: the cost of the campaign and of the measured work, with the prices used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
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
from trainbench.prices.run_cost import NOT_PRICED, gpu_hours, run_usd, why_no_cost
from trainbench.reporting import configuration_tables, recommendations
from trainbench.reporting.document import Lines, Section, Text, markdown
from trainbench.reporting.recommendations import SAMPLES
from trainbench.reporting.verdict_text import drill_sentence
from trainbench.reporting.work_names import work_name
from trainbench.results.campaign import Campaign
from trainbench.results.readings import gpu_name, is_measured, rank_noun

MISSING = "Set usd_per_gpu_hour, or add the GPU to the price table with its source and date."


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
    total_usd, hours = known_sum(map(run_usd, campaign.results)), known_sum(map(gpu_hours, campaign.results))
    num_unknown = [run_usd(run) for run in campaign.results].count(None)
    runs = count(len(campaign.results), "run")
    spent = runs if hours is None else f"{runs}, {figure(hours, 3)} GPU-hours"
    if _is_cpu_trial(campaign):
        return f"{NOT_PRICED} ({runs})."
    if total_usd is None:
        why = "has a known cost" if any(run.cost.usd_per_gpu_hour for run in campaign.results) else "has a price"
        return f"The cost of this campaign is unknown: no run {why} ({spent})."
    more = f"; {count(num_unknown, 'run')} without a known cost not included" if num_unknown else ""
    return f"This campaign cost {usd(total_usd)}: {spent}{more}."


def work_table(campaign: Campaign) -> Table:
    """For each measured work on a kind of GPU the price of its samples and tokens, and what SAMPLES of them take and
    cost; none of a trial on a CPU, which costs nothing.
    """
    measured = () if _is_cpu_trial(campaign) else filter(is_measured, campaign.results)
    groups = grouped(((run.spec.identity.group_id, gpu_name(run)), run) for run in measured)
    rows = [(work_name(campaign, of_group[0]), MeasuredRuns(results=tuple(of_group))) for of_group in groups.values()]

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
    for run in campaign.results:
        on_cpu, cost = run.spec.work.device is Device.CPU, run.cost
        on = "CPU" if on_cpu else gpu_name(run) or f"{NA}: GPU not reported"
        source = cost.price_source or (NOT_PRICED if on_cpu else NA)
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
    by_node = grouped((node, run) for run in campaign.results for node in run.spec.identity.nodes)
    notes = (
        ["A gang's cost is shared evenly by its nodes."] if any(r.spec.identity.peers for r in campaign.results) else []
    )
    if any(run_usd(run) is None for run in campaign.results):
        notes.append("n/a: at least one run of the node has no known cost.")

    def of_node(amount: Callable[[RunResult], float | None], runs: Sequence[RunResult]) -> float | None:
        amounts = ((amount(run), run.spec.placement.nodes) for run in runs)
        return sum_of_all(None if of_run is None else of_run / nodes for of_run, nodes in amounts)

    return make_table(
        by_node.items(),
        (
            text("node", lambda item: item[0]),
            integer("runs", lambda item: len(item[1])),
            run_figures.GPU_HOURS.column(lambda item: of_node(gpu_hours, item[1])),
            run_figures.RUN_USD.column(lambda item: of_node(run_usd, item[1])),
        ),
        run_id=lambda item: median_run(item[1]),
        notes=tuple(notes),
        title="Each node",
    )


def runs_table(campaign: Campaign) -> Table:
    names = short_names(campaign.results, campaign.labels)
    return make_table(
        campaign.results,
        (
            text("run id", lambda run: names[run.spec.identity.run_id]),
            integer(plural(rank_noun(campaign.results)), lambda run: run.spec.placement.world_size),
            *(each.column(each.value) for each in run_figures.COST_FIGURES[1:]),
            text("remark", lambda run: "; ".join(filter(None, ["drill" if run.spec.drill else "", why_no_cost(run)]))),
        ),
        run_id=lambda run: run.spec.identity.run_id,
        title="Each run",
    )


def missing_prices(campaign: Campaign) -> tuple[str, ...]:
    """The reasons why figures are missing, each once, with the setting that helps."""
    reasons = Counter(filter(None, map(why_no_cost, campaign.results)))
    lines = [f"{count(number, 'run')}: {why}" for why, number in reasons.items()]
    unpriced = any(
        run.cost.usd_per_gpu_hour is None and run.spec.work.device is Device.CUDA for run in campaign.results
    )
    return (*lines, *([MISSING] if unpriced else []))


def _is_cpu_trial(campaign: Campaign) -> bool:
    runs = campaign.results
    return bool(runs) and all(r.spec.work.device is Device.CPU and r.cost.usd_per_gpu_hour is None for r in runs)
