"""The command `cost`: the report of the DAG `cost_report`, without Airflow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli.base import AsJson, ExitCode, StoreUrl, console, named_values, print_json, user_errors
from trainbench.core.formats import count, listing

if TYPE_CHECKING:
    pass

app = typer.Typer()

Set = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="A parameter of the DAG's form; may be repeated."),
]


@app.command()
def cost(
    month: Annotated[str | None, typer.Option(help="Month, as 2026-11, in UTC. Default: this month.")] = None,
    set_: Set = None,
    all_: Annotated[bool, typer.Option("--all", help="Show every table of the report.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Also write the report's files into the store.")] = False,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the cost of benchmarking, of the measured work over time, and at other prices."""
    from trainbench.cost.monthly_report import publish, report_on
    from trainbench.history.history import open_history
    from trainbench.params.cost_params import parse_spend_params
    from trainbench.results.artefacts import open_store
    from trainbench.settings.environment import read_settings

    with user_errors():
        changes = named_values(set_, example="usd_per_kwh=0.2")
        params = parse_spend_params(changes | ({"month": month} if month else {}))
        settings, now = read_settings(), datetime.now(UTC)
        store = open_store(store_url or settings.store)
        history = open_history(settings.history_url, store)
        report = report_on(params, history, f"by-hand-{params.month or f'{now:%Y-%m}'}", now)
        files = publish(report, store) if write else {}
    if as_json:
        print_json({**dict(report), "files": files})
        raise typer.Exit(ExitCode.OK)

    # Print the answer, then a table that fits a screen, or all tables.
    from trainbench.cost.monthly_report import screen_table, spend_tables
    from trainbench.reporting.terminal import plain, titled

    shown = console()
    shown.print(*map(plain, report.summary), sep="\n")
    every = spend_tables(report)
    first = screen_table(report)
    for content in every if all_ else (first,) if first.rows else ():
        shown.print(titled(content))
    if every and not all_:
        shown.print(plain(f"--all shows {count(len(every), 'table')}: {listing((t.title for t in every), most=9)}."))
    for address in files.values():
        typer.echo(address)
