"""The command `table`: runs, months or node histories as CSV or Parquet, for notebooks and other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trainbench.cli.base import AsJson, ExitCode, StoreUrl, print_json, user_errors

app = typer.Typer()


class Content(StrEnum):
    RUNS = "runs"
    MONTHS = "months"
    NODES = "nodes"


What = Annotated[
    Content,
    typer.Argument(help="runs: figures of each run; months: cost by month and DAG; nodes: recorded runs by node."),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(help="Ids of campaigns (runs) or names of nodes. Default: all.", metavar="[NAME]..."),
]
Output = Annotated[
    Path | None, typer.Option(help="File that ends in .csv or .parquet. Default: CSV on standard output.")
]


@app.command()
def table(
    what: What, names: Names = None, output: Output = None, store_url: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Write runs, months or node histories as one table: the DataFrames of `trainbench.frames`."""
    from trainbench import frames
    from trainbench.core.user_error import UserError

    with user_errors():
        if what is Content.MONTHS and names:
            raise UserError("months are not chosen by name: leave the names out")
        if what is Content.MONTHS:
            frame = frames.months(store=store_url)
        else:
            frame = (frames.runs if what is Content.RUNS else frames.node_history)(*(names or ()), store=store_url)
        if output:
            frames.write(frame, output)
    if as_json:
        rows = {"file": str(output.absolute()) if output else None, "rows": None if output else frames.records(frame)}
        print_json({"num_rows": len(frame), "columns": list(frame.columns)} | rows)
    elif output:
        typer.echo(str(output.absolute()))
    else:
        typer.echo(frames.csv_text(frame), nl=False)
    raise typer.Exit(ExitCode.OK)
