"""Commands about nodes that other work is kept away from: `nodes list`, `nodes free`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli.base import (
    AsJson,
    ExitCode,
    StoreUrl,
    Who,
    console,
    print_error,
    print_json,
    user_errors,
    user_name,
)
from trainbench.cli.cluster import Context, Kubeconfig
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from trainbench.cluster.free_nodes import NodeOutcome

app = typer.Typer(help="Nodes that trainbench marked because they are red, so that other work keeps away.")


@app.command("list")
def list_(kubeconfig: Kubeconfig = None, context: Context = None, as_json: AsJson = False) -> None:
    """List all marked nodes of the cluster: since when, why, and by whom."""
    from trainbench.cluster.free_nodes import marked_nodes
    from trainbench.cluster.kubernetes_api import open_cluster
    from trainbench.settings.environment import read_settings

    with user_errors(), _cluster_errors():
        settings = read_settings()
        outcomes = marked_nodes(open_cluster(settings, kubeconfig, context), settings)
    _show(outcomes, as_json)


@app.command()
def free(
    nodes: Annotated[list[str] | None, typer.Argument(help="Nodes to free.", metavar="[NODE]...")] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="All nodes that this installation marked.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be freed.")] = False,
    who: Who = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take the marks off nodes: other work may run there again. A later red run marks a node anew."""
    from trainbench.cluster.free_nodes import Outcome, free_nodes
    from trainbench.cluster.kubernetes_api import open_cluster
    from trainbench.settings.environment import read_settings

    with user_errors(), _cluster_errors():
        settings = read_settings()
        if all_nodes == bool(nodes):
            raise UserError("which nodes are to be freed? Name them, or give --all")
        by, cluster = who or user_name(), open_cluster(settings, kubeconfig, context)
        outcomes = tuple(free_nodes(cluster, settings, nodes or None, dry_run))
    free_now = [each.listed.node for each in outcomes if each.outcome in (Outcome.FREED, Outcome.NOT_MARKED)]
    if free_now and not dry_run:
        _record(free_now, by, store_url)
    _show(outcomes, as_json)


def _record(nodes: Sequence[str], who: str, store_url: str | None) -> None:
    """Ends the nodes' warnings. Where the history cannot be written the nodes are free nevertheless."""
    from trainbench.history.database import HistoryError
    from trainbench.history.history import open_history
    from trainbench.results.artefacts import open_store
    from trainbench.settings.environment import read_settings

    try:
        history = open_history(read_settings().history_url, open_store(store_url))
        history.end_marks(nodes, who, datetime.now(UTC))
    except HistoryError as error:
        print_error(f"the nodes are free, and the history does not know it until the next run: {error}")


@contextmanager
def _cluster_errors() -> Iterator[None]:
    from trainbench.cluster.kubernetes_api import ClusterError

    try:
        yield
    except ClusterError as error:
        raise UserError(str(error)) from None


def _show(outcomes: Sequence[NodeOutcome], as_json: bool) -> None:
    from trainbench.cluster.free_nodes import outcomes_table
    from trainbench.reporting.terminal import rich_table

    if as_json:
        print_json({"nodes": [each.document for each in outcomes]})
    elif outcomes:
        console().print(rich_table(outcomes_table(outcomes)))
    else:
        typer.echo("no node is marked")
    raise typer.Exit(ExitCode.USAGE if any(each.fault for each in outcomes) else ExitCode.OK)
