"""The commands `list` and `show`: what the store holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli import base, completions
from trainbench.cli.base import ExitCode, StoreUrl
from trainbench.core.close_matches import did_you_mean
from trainbench.core.formats import listing, moment
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from bench_image.contract.result import RunResult
    from trainbench.core.tables import Table

app = base.App("Results")
Source = Annotated[
    str,
    typer.Argument(
        help="A campaign's id, or a folder with result.json files at any depth.", autocompletion=completions.campaigns
    ),
]


@app.command("list")
def list_(store_url: StoreUrl = None) -> ExitCode:
    """List all campaigns with their verdict's figures, the newest first, and those without a verdict."""
    from sqlalchemy import select

    from trainbench.core.tables import integer, make_table, text
    from trainbench.history.tables import campaigns

    shown = ("campaign_id", "suite", "title", "started_at", "finished_at", "num_runs", "num_failed", "num_red")
    query = select(*(campaigns.c[name] for name in shown)).order_by(campaigns.c.finished_at.desc())
    with base.open_history(store_url).engine.connect() as connection:
        rows = [dict(row._mapping) for row in connection.execute(query)]
    known = {row["campaign_id"] for row in rows}
    without = [name for name in base.open_store(store_url).campaign_ids() if name not in known]
    if not base.print_json({"campaigns": rows, "without_verdict": without}):
        base.print_tables(
            make_table(
                rows,
                (
                    text("campaign", lambda row: row["campaign_id"]),
                    text("DAG", lambda row: row["suite"]),
                    text("work", lambda row: row["title"]),
                    text("ended (UTC)", lambda row: moment(row["finished_at"])),
                    integer("runs", lambda row: row["num_runs"]),
                    integer("failed", lambda row: row["num_failed"]),
                    integer("red nodes", lambda row: row["num_red"]),
                ),
                title="Campaigns",
            )
        )
        if without:
            base.print_lines(f"Without a verdict: {listing(without)}; `show` says what they hold.")
    return ExitCode.OK


@app.command()
def show(
    source: Source,
    run: Annotated[
        str | None, typer.Argument(help="A run's id, for all its figures.", autocompletion=completions.runs)
    ] = None,
    store_url: StoreUrl = None,
) -> ExitCode:
    """Show a stored campaign with its verdict and runs, or all figures of one run. Judges nothing anew: see `check`."""
    from trainbench.cli.stored_plan import open_stored

    store = base.open_store(store_url)
    with base.progress("files read") as on_progress:
        stored = open_stored(source, store, {}, on_progress)
    results = (*stored.measured.results, *stored.reruns)
    base.print_broken(stored.broken)
    if run is not None:
        _show_run(results, run)
        return ExitCode.OK
    campaign = stored.campaign
    verdict = {name: value for name, value in campaign if name != "results"} if campaign else None
    brief = [{"run_id": each.spec.identity.run_id, "status": each.status, "error": each.error} for each in results]
    if not base.print_json({"verdict": verdict, "runs": brief}):
        from trainbench.reporting.terminal import verdict_table

        base.print_tables(_runs_table(results))
        if campaign:
            base.console().print(verdict_table(campaign))
        else:
            base.print_lines(stored.unfinished)
    return ExitCode.OK


def _runs_table(results: Sequence[RunResult]) -> Table:
    from trainbench.core.tables import make_table, number, text

    return make_table(
        results,
        (
            text("run", lambda result: result.spec.identity.run_id),
            text("node", lambda result: result.spec.identity.node),
            text("started (UTC)", lambda result: moment(result.started_at)),
            number("samples/s", lambda result: result.performance.samples_per_second),
            text("status", lambda result: result.status.value),
        ),
        title="Runs",
    )


def _show_run(results: Sequence[RunResult], run_id: str) -> None:
    from trainbench.core.tables import make_table, number, text
    from trainbench.figure_catalogue.run_figures import RUN_FIGURES

    by_id = {result.spec.identity.run_id: result for result in results}
    if run_id not in by_id:
        close = did_you_mean(run_id, by_id)
        raise UserError(f"there is no run '{run_id:.200}'{close}: the campaign has {listing(by_id)}")
    result = by_id[run_id]
    if base.print_json({"run": result}):
        return
    known = [(figure, value) for figure in RUN_FIGURES if (value := figure.value(result)) is not None]
    base.print_tables(
        make_table(
            known,
            (
                text("figure", lambda row: row[0].label),
                number("value", lambda row: row[1]),
                text("unit", lambda row: row[0].unit),
            ),
            title=run_id,
        )
    )
    ended = f"{result.status.value}: {result.error.message}" if result.error else result.status.value
    base.print_lines(f"{moment(result.started_at)} to {moment(result.finished_at)} UTC, {ended}")
