"""BENCHMARK_REPORT.md: the verdict first, then the evidence, then how to read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trainbench.core.formats import count, duration, moment, sentence
from trainbench.core.markdown import bullets, escape, folded, section, table
from trainbench.core.states import TRAITS
from trainbench.core.tables import Table, Tone
from trainbench.core.verdicts import Finding, GroupVerdict, NodeVerdict
from trainbench.reporting import cost_report, glossary, plots, run_tables, verdict_text
from trainbench.reporting.comparison_sections import Section, comparison_sections
from trainbench.results.campaign import Campaign

OTHER_FILES = {
    "report.html": "this report with charts, in one file",
    "COST_REPORT.md": "prices, cost of each run and node check",
    "metrics.csv": "one row for each run",
    "report.json": "verdicts, findings, runs and tables for programs",
}

MAX_OPEN_ROWS = 12  # of evidence, which few readers look up; the answer stands open above it
_OF_RUNS = (
    run_tables.performance, run_tables.scaling, run_tables.startup, run_tables.probes, run_tables.telemetry,
    run_tables.failures, run_tables.skipped,
)  # fmt: skip


def benchmark_report(campaign: Campaign, files: Sequence[str] = (), sections: Sequence[Section] | None = None) -> str:
    """The report as Markdown. `files`: paths beside the report, relative to it; only these are linked. `sections`: the
    result of `comparison_sections` where the caller has it: for a large fleet it takes seconds.
    """
    sections = comparison_sections(campaign) if sections is None else sections
    wanted = {f"runs/{r.spec.identity.run_id}/result.json": r.spec.identity.run_id for r in campaign.results}
    run_ids = ((wanted.get("/".join(path.split("/")[-3:])), path) for path in files)
    links = {run_id: path for run_id, path in run_ids if run_id}
    images = [f"![{name}](plots/{name}.png)" for name in plots.NAMES if f"plots/{name}.png" in files]
    absent = plots.reasons_not_drawn(campaign)
    lines = (cost_report.summary(campaign), *cost_report.sample_prices(campaign))
    parts = [
        _head(campaign),
        *_verdicts(campaign, links),
        *_red_nodes(campaign),
        *(part for each in sections for part in (f"## {each.title}", *_titled(each.tables, links, level=3))),
        *_findings(campaign),
        *["## Plots", *images, *([bullets(absent)] if absent else [])],
        *_titled([make(campaign) for make in _OF_RUNS], links, most=MAX_OPEN_ROWS),
        f"## Cost\n\n{bullets(lines)}\n{table(cost_report.prices_table(campaign))}",
        *_configuration(campaign),
        _reading(),
        *_other_files(files),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _head(campaign: Campaign) -> str:
    lines = [f"# {escape(campaign.title)}", f"**{escape(verdict_text.verdict(campaign))}**"]
    if more := verdict_text.recommended(campaign):
        lines.append(bullets(more).rstrip("\n"))
    if drill_text := verdict_text.drill_sentence(campaign):
        lines.append(f"> **{escape(drill_text)}**")
    took = duration((campaign.finished_at - campaign.started_at).total_seconds())
    lines.append(
        f"{escape(campaign.suite)}, campaign {escape(campaign.campaign_id)}: {count(len(campaign.results), 'run')}, "
        f"{moment(campaign.started_at)}, took {took}."
    )
    return "\n\n".join(lines)


def _verdicts(campaign: Campaign, links: Mapping[str, str]) -> list[str]:
    if not campaign.judges_nodes:
        return []
    if not campaign.groups:
        return ["## Verdict\n\nNo node gave a result that could be compared."]
    alone, accepted = verdict_text.lone_line(campaign), verdict_text.accepted_baselines(campaign)
    groups = (_group(campaign, group, links) for group in verdict_text.shown_groups(campaign))
    lines = (*((alone,) if alone else ()), *accepted)
    return ["## Verdict", *groups, *([bullets(lines)] if lines else [])]


def _group(campaign: Campaign, group: GroupVerdict, links: Mapping[str, str]) -> str:
    content = verdict_text.verdict_table(campaign, group)
    lines = (*verdict_text.reason_sentences(group), *verdict_text.fleet_lines(group), verdict_text.limits_line(group))
    return f"### {escape(content.title)}\n\n{table(content, links)}\n{bullets(lines)}"


def _bad(campaign: Campaign) -> Sequence[NodeVerdict]:
    return [node for node in campaign.nodes if verdict_text.TONES.get(node.state) is Tone.BAD]


def _red_nodes(campaign: Campaign) -> list[str]:
    nodes, findings = _bad(campaign), verdict_text.findings_by_node(campaign)
    parts = [_bad_node(node, findings.get(node.node, ())) for node in nodes]
    return ["## Red nodes", *parts] if parts else []


def _bad_node(node: NodeVerdict, findings: Sequence[Finding]) -> str:
    lines = [
        f"{sentence(f.explanation)} Measured: {sentence(f.measured)} Expected: {sentence(f.expected)} "
        f"Next step: {sentence(f.resolution)}"
        for f in findings
    ] or [f"Next step: {sentence(TRAITS[node.why].next_step)}"]
    reason = escape(f"{verdict_text.state_text(node)}. {sentence(node.reason)}")
    return f"### {escape(node.node)}\n\n{reason}\n\n{bullets(lines)}"


def _findings(campaign: Campaign) -> list[str]:
    by_node = verdict_text.findings_by_node(campaign)
    shown = {id(finding) for node in _bad(campaign) for finding in by_node.get(node.node, ())}
    kinds = verdict_text.finding_kinds(finding for finding in campaign.findings if id(finding) not in shown)
    others = verdict_text.findings_table([finding for kind in kinds for finding in kind.shown])
    more = [folded(replace(kind.more, title=f"{kind.name}: {kind.more.title}")) for kind in kinds if kind.more]
    return [*_titled([replace(others, title="Other findings")]), *more]


def _configuration(campaign: Campaign) -> list[str]:
    made = (run_tables.chosen(campaign), run_tables.software(campaign), run_tables.parameters(campaign))
    parts = _titled((*run_tables.work(campaign), *made), level=3, most=MAX_OPEN_ROWS)
    return ["## Configuration", *parts] if parts else []


def _reading() -> str:
    figures = "".join(f"- **{name}**: {escape(text)}\n" for name, text in glossary.FIGURES)
    states = "".join(f"- **{name}**: {escape(text)}\n" for name, text in glossary.STATES)
    return f"## How to read this\n\n{figures}\n{glossary.MORE}\n\nStates:\n\n{states}"


def _other_files(files: Sequence[str]) -> list[str]:
    links = [f"- [{name}]({name}): {text}\n" for name, text in OTHER_FILES.items() if name in files]
    return ["## Files\n\n" + "".join(links)] if links else []


def _titled(
    tables: Iterable[Table], links: Mapping[str, str] | None = None, level: int = 2, most: int | None = None
) -> list[str]:
    """The tables with rows, each under its title. `most`: longer ones are closed."""
    return [section(content, links, level, most) for content in tables if content.rows]
