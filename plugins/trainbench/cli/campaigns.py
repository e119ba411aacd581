"""The commands `list` and `show`: what the store holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli import base, completions
from trainbench.cli.base import StoreUrl
from trainbench.core.formats import listing, moment

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
def list_(store_url: StoreUrl = None) -> None:
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
    table = make_table(
        rows,
        (
            text("campaign", lambda row: row["campaign_id"]),
            text("DAG", lambda row: row["suite"]),
            text("work", lambda row: row["title"]),
            text("ended", lambda row: moment(row["finished_at"])),
            integer("runs", lambda row: row["num_runs"]),
            integer("failed", lambda row: row["num_failed"]),
            integer("red nodes", lambda row: row["num_red"]),
        ),
        title="Campaigns",
    )
    remedy = "`show` says what they hold, `reindex` records what has one"
    left = f"Without a verdict in the history: {listing(without)}; {remedy}."
    base.answer({"campaigns": rows, "without_verdict": without}, table, *([left] if without else []))


@app.command()
def show(source: Source, store_url: StoreUrl = None) -> None:
    """Show a stored campaign with its verdict and runs. Judges nothing anew: see `check`."""
    from trainbench.cli.stored_plan import open_stored

    store = base.open_store(store_url)
    with base.progress("files read") as on_progress:
        stored = open_stored(source, store, {}, on_progress)
    results = (*stored.measured.results, *stored.reruns)
    base.print_broken(stored.broken)
    campaign = stored.campaign
    verdict = campaign.brief if campaign else None
    brief = [{"run_id": each.spec.identity.run_id, "status": each.status, "error": each.error} for each in results]
    if not base.print_json({"verdict": verdict, "runs": brief}):
        from trainbench.reporting.terminal import verdict_table

        base.show(_runs_table(results))
        if campaign:
            base.console().print(verdict_table(campaign))
        else:
            base.show(stored.unfinished)


def _runs_table(results: Sequence[RunResult]) -> Table:
    from trainbench.core.tables import make_table, number, text

    return make_table(
        results,
        (
            text("run", lambda result: result.spec.identity.run_id),
            text("node", lambda result: result.spec.identity.node),
            text("started", lambda result: moment(result.started_at)),
            number("samples/s", lambda result: result.performance.samples_per_second),
            text("status", lambda result: result.status.value),
        ),
        title="Runs",
    )
