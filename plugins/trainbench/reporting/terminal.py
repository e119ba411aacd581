"""The verdict for a terminal: readable without colour and on 100 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
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
        lines = (*verdict_text.reason_sentences(campaign, group), *verdict_text.fleet_lines(group))
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
    shown = [Fitting(content)] if content.rows else []
    return Group(*([plain(content.title, style="bold")] if content.title else []), *shown, *map(plain, content.notes))


def plain(text: str, style: str = "") -> Text:
    """Literal text of any length: rich's markup and terminal escapes have no effect in it."""
    return Text(one_line(text, most=len(text) + 1), style=style)


@dataclass(frozen=True)
class Fitting:
    """A table for the terminal; the last cell has the row's tone. Of a long table the first rows. Ids in its first
    cells are never folded, so that they can be copied: what has no room beside them stands below.
    """

    content: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        short = shortened(self.content, "--json has")
        # Cells are Text: rich would read square brackets in a plain string as its own markup.
        rows = [([Text(one_line(text)) for text in row.texts], STYLES[row.tone]) for row in short.rows]
        longest = max((len(cells[0]) for cells, _ in rows), default=0)
        are_ids = not any(" " in cells[0].plain for cells, _ in rows)
        shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, column in enumerate(short.columns):
            kept: dict[str, Any] = {"min_width": longest, "no_wrap": True} if are_ids and not place else {}
            kept["justify"] = "right" if column.is_number else "left"
            shown.add_column(Text(column.name), overflow="fold", **kept)
        for (*cells, last), style in rows:
            shown.add_row(*cells, Text(last.plain, style=style))
        if not are_ids or shown.__rich_measure__(console, options).minimum <= options.max_width:
            yield shown
        else:
            for (first, *rest), style in rows:
                told = (f"{column.name} {text}" for column, text in zip(short.columns[1:], rest, strict=True) if text)
                yield from (first, Padding(Text("; ".join(told), style=style), (0, 0, 0, 4)))
        if len(rows) < len(self.content.rows):
            yield plain(short.notes[0])
