"""The verdict for a terminal: readable without colour and on 100 columns."""

from __future__ import annotations

from dataclasses import replace

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from trainbench.core.formats import one_line
from trainbench.core.tables import Table, Tone, only, shortened
from trainbench.reporting import comparison_sections, configuration_tables, cost_report, survey_tables, verdict_text
from trainbench.results.campaign import Campaign

# The columns that fit 100 characters; the reports have the others.
NARROW = frozenset({
    "GPUs", "processes", "strategy", "place", "tokens/s", "median step ms", "memory GB", "exposed comm.", "scaling",
    "verdict", "configuration", "summary",
    "recipe", "hardware", "micro-batch", "relative speed", "per 1M samples",
})  # fmt: skip
STYLES = {Tone.GOOD: "green", Tone.WARN: "yellow", Tone.BAD: "bold red", Tone.PLAIN: ""}


def verdict_table(campaign: Campaign) -> Group:
    """Print each group's table with spread and noise, then the cost, the next steps, and the verdict last."""
    parts: list[RenderableType] = []
    for group in verdict_text.shown_groups(campaign):
        lines = (*verdict_text.reason_sentences(group), *verdict_text.fleet_lines(group))
        parts.append(titled(replace(verdict_text.verdict_table(campaign, group), notes=lines)))
    compared = (
        *configuration_tables.verdicts(campaign),
        *survey_tables.speed(campaign),
        *comparison_sections.strategies(campaign),
    )
    narrow = (only(content, NARROW) for content in compared)
    parts += map(titled, (*narrow, *comparison_sections.noise_tables(campaign)))
    if alone := verdict_text.lone_line(campaign):
        parts.append(plain(alone))
    parts += [plain(f"{skipped.state} {skipped.what}: {skipped.reason}") for skipped in campaign.skipped]
    costs = only(cost_report.work_table(campaign), ("work", "per 1K samples", "per 1M tokens"))
    costs = replace(costs, title="What each work costs")
    parts += [*([titled(costs)] if costs.rows and not compared else []), plain(cost_report.summary(campaign))]
    parts += map(plain, verdict_text.next_steps(campaign))
    if drill_text := verdict_text.drill_sentence(campaign):
        parts.append(plain(drill_text, style="bold"))
    parts.append(plain(verdict_text.verdict(campaign), style=STYLES[verdict_text.tone(campaign)]))
    return Group(*parts)


def titled(content: Table) -> Group:
    """A table with its title above and its notes below; without a row no empty frame."""
    shown = [rich_table(content)] if content.rows else []
    return Group(*([plain(content.title, style="bold")] if content.title else []), *shown, *map(plain, content.notes))


def plain(text: str, style: str = "") -> Text:
    """Literal text of any length: rich's markup and terminal escapes have no effect in it."""
    return Text(one_line(text, most=len(text) + 1), style=style)


def rich_table(content: Table) -> RichTable:
    """A table for the terminal; the last cell has the row's tone. Of a long table the first rows."""
    short = shortened(content, "--json has")
    # Cells are Text: rich would read square brackets in a plain string as its own markup.
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    if len(short.rows) < len(content.rows):
        shown.caption = plain(short.notes[0])
    for column in short.columns:
        shown.add_column(Text(column.name), justify="right" if column.is_number else "left", overflow="fold")
    for row in short.rows:
        *texts, last = map(one_line, row.texts)
        shown.add_row(*map(Text, texts), Text(last, style=STYLES[row.tone]))
    return shown
