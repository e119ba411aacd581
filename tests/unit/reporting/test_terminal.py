from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from tests.builders import campaigns, verdicts
from trainbench.reporting.terminal import verdict_table
from trainbench.results.campaign import Campaign


def printed(campaign: Campaign) -> str:
    console = Console(file=io.StringIO(), width=100, no_color=True)
    console.print(verdict_table(campaign))
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
