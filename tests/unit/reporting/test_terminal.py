from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from tests.builders import campaigns, verdicts
from trainbench.core.tables import Table, make_table, text_columns
from trainbench.reporting.terminal import titled, verdict_table
from trainbench.results.campaign import Campaign


def printed(content: Campaign | Table, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(titled(content) if isinstance(content, Table) else verdict_table(content))
    file = console.file
    assert isinstance(file, io.StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("make", campaigns.REPORTED)
def test_the_verdict_on_100_columns(make: Callable[[], Campaign], golden: Callable[[str, str], None]) -> None:
    text = printed(make())
    assert max(len(line) for line in text.splitlines()) <= 100
    golden(f"terminal-{make.__name__.replace('_', '-')}.txt", text)


def test_square_brackets_are_text_and_not_markup() -> None:
    node = verdicts.make_node("[red]node[/red]", reason="[bold]why")
    campaign = campaigns.make_campaign([], [verdicts.make_group([node], "g")])
    assert "[red]node[/red]" in printed(campaign)


def test_an_id_is_never_folded_so_that_it_can_be_copied() -> None:
    name = "node_consistency-scheduled__2026-11-28T02-00-00-00-00"
    table = make_table([(name, "mistral-7b qlora, batch 8", "12")], text_columns("campaign", "work", "runs"))
    assert f"{name}   mistral-7b qlora," in printed(table, 90)
    assert printed(table, 70) == f"{name}\n    work mistral-7b qlora, batch 8; runs 12\n"
