"""A campaign's report: the verdict first, then the evidence, then how to read it. As BENCHMARK_REPORT.md and as
report.html.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from bench_image.contract.work import Device
from trainbench.core.formats import count, duration, moment, sentence
from trainbench.core.grouping import grouped
from trainbench.core.markdown import bullets, escape
from trainbench.core.tables import LOG_LINK, RESULT_LINK, Table, Tone, only
from trainbench.core.verdicts import Finding, State
from trainbench.figure_catalogue import run_figures
from trainbench.reporting import cost_report, glossary, plots, run_tables, verdict_text
from trainbench.reporting.comparison_sections import comparison_sections
from trainbench.reporting.document import Card, Closed, Lines, Part, Picture, Section, Text, document_html, markdown
from trainbench.reporting.pictures import svg
from trainbench.results.campaign import Campaign

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = {Tone.GOOD: "All well", Tone.WARN: "Look closer", Tone.BAD: "Action needed"}
MAX_ALIKE = 3  # findings of one level and category are all shown; of more the first
MOST_OPEN = 20  # rows of nodes that are well, and of evidence, which few readers look up
MOST_COMPARED = 40  # rows of each comparison
OTHER_FILES = {
    "report.html": "this report with charts, in one file",
    "COST_REPORT.md": "prices, cost of each run and node",
    "metrics.csv": "one row for each run",
    "verdict.json": "verdicts, findings, results and costs for programs",
}


def benchmark_report(campaign: Campaign, files: Sequence[str] = (), compared: Sequence[Section] | None = None) -> str:
    """The report as Markdown. `files`: paths beside the report, relative to it; only these are linked. `compared`: the
    result of `comparison_sections` where the caller has it: for a large fleet it takes seconds.
    """
    wanted = {f"runs/{r.spec.identity.run_id}/result.json": r.spec.identity.run_id for r in campaign.results}
    run_ids = ((wanted.get("/".join(path.split("/")[-3:])), path) for path in files)
    links = {run_id: path for run_id, path in run_ids if run_id}
    pictures = {name for name in plots.NAMES if f"plots/{name}.png" in files}
    suite, *facts = facts_of(campaign)
    head = [f"# {escape(campaign.title)}", f"**{escape(verdict_text.verdict(campaign, is_brief=True))}**"]
    if more := verdict_text.next_lines(campaign):
        head.append(bullets(more).rstrip("\n"))
    if drill := verdict_text.drill_sentence(campaign):
        head.append(f"> **{escape(drill)}**")
    head.append(f"{escape(suite)}, {escape(', '.join(facts))}.")
    others = [f"- [{name}]({name}): {text}" for name, text in OTHER_FILES.items() if name in files]
    tail = ["## Files", "\n".join(others)] if others else []
    return "\n\n".join([*head, *markdown(report_sections(campaign, pictures, compared), links), *tail]) + "\n"


class InAirflow(NamedTuple):
    """The report as a page inside Airflow: the address of the pages' script, of a run's result by `{run_id}`, and of
    its kept log by `{run_id}` and `{name}`.
    """

    script: str
    result_link: str
    log_link: str


def report_html(
    campaign: Campaign,
    pictures: Mapping[str, Figure],
    compared: Sequence[Section] | None = None,
    page: InAirflow | None = None,
) -> str:
    """The report as HTML. `pictures`: those of `plots.draw`. `compared`: the result of `comparison_sections` where the
    caller has it. `page`: None for the file in the store.
    """
    badge = verdict_text.drill_badge(campaign)
    tone = Tone.PLAIN if badge else verdict_text.tone(campaign)  # a detected drill is no alarm
    word = badge or WORDS[tone]
    result_link = page.result_link if page else RESULT_LINK
    run_ids = [result.spec.identity.run_id for result in campaign.results]
    return document_html(
        f"{word}: {campaign.title}",
        verdict_text.verdict(campaign, is_brief=True),
        tuple(report_sections(campaign, pictures, compared, page.log_link if page else LOG_LINK)),
        word=word,
        tone=tone,
        drill=verdict_text.drill_sentence(campaign),
        more=verdict_text.next_lines(campaign),
        about=campaign.title,
        facts=facts_of(campaign),
        pictures={name: svg(figure) for name, figure in pictures.items()},
        links={run_id: result_link.format(run_id=run_id) for run_id in run_ids},
        script=page.script if page else None,
    )


def facts_of(campaign: Campaign) -> tuple[str, ...]:
    took = duration((campaign.finished_at - campaign.started_at).total_seconds())
    runs = count(len(campaign.results), "run")
    return campaign.suite, f"campaign {campaign.campaign_id}", runs, moment(campaign.started_at), f"took {took}"


def report_sections(
    campaign: Campaign, pictures: Collection[str], compared: Sequence[Section] | None = None, log_link: str = LOG_LINK
) -> Iterator[Section]:
    """All sections of the report. `pictures`: names of those that can be shown; `compared`: as above."""
    if campaign.judges_nodes:
        yield Section("Verdict", list(_verdict(campaign, pictures)), "verdict")
    for section in comparison_sections(campaign) if compared is None else compared:
        parts = (part for whole in section.tables for part in _begin(whole, MOST_COMPARED, "rows"))
        yield replace(section, parts=tuple(parts))
    if curves := [Picture(name, name.replace("_", " ")) for name in plots.NAMES[1:] if name in pictures]:
        units = "processes" if all(run.spec.work.device is Device.CPU for run in campaign.results) else "GPUs"
        yield Section(f"Over the number of {units}", curves, "plots", "Plots")
    yield _evidence("Findings", _findings(campaign, log_link), "findings")

    rates, *others, seconds = (run_tables.runs_table(campaign, each) for each in run_figures.SECTIONS)
    measured = rates if rates.rows else Text("No run measured a throughput.")
    yield _evidence("Runs", [measured, *_filled(*others)], "runs")
    shown = seconds if seconds.rows else Text("No run reported the seconds of its phases.")
    yield _evidence(seconds.title, [shown], "seconds", "Seconds")

    makes = (cost_report.work_table, cost_report.prices_table, cost_report.nodes_table)
    gaps = Lines(cost_report.missing_prices(campaign))
    costs = _filled(*(make(campaign) for make in makes))
    yield _evidence("Cost", [Text(cost_report.summary(campaign)), *costs, gaps], "cost")

    setup = _filled(run_tables.software(campaign), run_tables.chosen(campaign))
    settings = map(Closed, _filled(run_tables.work(campaign), run_tables.parameters(campaign)))
    yield _evidence("Configuration", [*setup, *settings], "configuration")
    yield Section("How to read this", [*map(Closed, glossary.tables()), Text(glossary.MORE)], "reading", "How to read")


def _evidence(title: str, parts: Iterable[Part], anchor: str, name: str = "") -> Section:
    """A section whose long tables are closed."""
    closed = [Closed(part) if isinstance(part, Table) and len(part.rows) > MOST_OPEN else part for part in parts]
    return Section(title, closed, anchor, name)


def _begin(whole: Table, num_open: int, rest: str) -> Iterator[Part]:
    """The first rows; the others are closed."""
    yield replace(whole, rows=whole.rows[:num_open])
    if closed := whole.rows[num_open:]:
        yield Closed(replace(whole, rows=closed, notes=(), title=f"{len(closed):,} more {rest}"))


def _filled(*tables: Table) -> Iterator[Table]:
    return (table for table in tables if table.rows)


def _verdict(campaign: Campaign, pictures: Collection[str]) -> Iterator[Part]:
    groups, alone = verdict_text.shown_groups(campaign), verdict_text.lone_line(campaign)
    for group in groups:
        whole = verdict_text.verdict_table(campaign, group)
        num_open = max(MOST_OPEN, sum(row.tone is not Tone.GOOD for row in whole.rows))
        yield from _begin(whole, num_open, "nodes, which are well")
        reasons = (*verdict_text.reason_sentences(campaign, group), *verdict_text.fleet_lines(group))
        yield Lines((*reasons, verdict_text.limits_line(group)))
    if not groups and not alone:
        yield Text("No node gave a result that could be compared.")
    if "node_variance" in pictures:
        yield Picture("node_variance", "Samples per second of each node; the tables above have the figures")
    if alone:
        yield Text(alone)
    yield from map(Text, verdict_text.accepted_baselines(campaign))


def _findings(campaign: Campaign, log_link: str) -> Iterator[Part]:
    explained = verdict_text.findings_by_node(campaign)
    red = [node for node in campaign.node_states if node.state is State.RED and node.node not in explained]
    for finding in (campaign.finding_of(node) for node in red):
        yield Card(finding.level, _title(finding), [("Next step", sentence(finding.resolution))])
    for alike in grouped(((finding.level, finding.category), finding) for finding in campaign.findings).values():
        is_folded = len(alike) > MAX_ALIKE
        yield from map(_card, alike[:1] if is_folded else alike)
        if is_folded:
            rest = only(verdict_text.findings_table(alike[1:]), ("subject", "what", "measured", "expected"))
            yield Closed(replace(rest, title=f"{len(rest.rows)} more like this one"))
    if not red and not campaign.findings:
        yield Text("Nothing beyond the verdict.")
    yield from _filled(run_tables.failures(campaign, log_link), run_tables.skipped(campaign))


def _title(finding: Finding) -> str:
    """ "node-3 is slow": the figures of a node's state stand in the verdict above, and beside what was expected."""
    return finding.headline.partition(": ")[0] if finding.why and not finding.is_drill else finding.headline


def _card(finding: Finding) -> Card:
    cause = [("Likely cause", sentence(finding.cause))] if finding.cause else []
    measured = [("Measured", finding.measured), ("Expected", finding.expected)]
    return Card(finding.level, _title(finding), [*cause, *measured, ("Next step", sentence(finding.resolution))])
