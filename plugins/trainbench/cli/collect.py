"""The command `collect`: results of pods that were applied by hand, into the store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from trainbench.cli.base import AsJson, ExitCode, StoreUrl, console, print_json, user_errors
from trainbench.cli.cluster import Context, Kubeconfig

app = typer.Typer()


@app.command()
def collect(
    campaign: Annotated[
        str | None, typer.Argument(help="Id of a campaign. Default: every campaign that has pods.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Store results and logs of finished pods that `plan --manifests | kubectl apply -f -` made; may be repeated."""
    from trainbench.cluster.collect_pods import Outcome, collect_pods, collected_table
    from trainbench.cluster.kubernetes_api import ClusterError, open_cluster
    from trainbench.core.user_error import UserError
    from trainbench.reporting.terminal import rich_table
    from trainbench.results.artefacts import open_store
    from trainbench.settings.environment import read_settings

    with user_errors():
        settings = read_settings()
        store = open_store(store_url or settings.store)
        try:
            cluster = open_cluster(settings, kubeconfig, context)
            pods = collect_pods(cluster, settings, store, campaign, datetime.now(UTC))
        except ClusterError as error:
            raise UserError(str(error)) from None
        if not pods:
            of = f"campaign {campaign}" if campaign else "trainbench"
            raise UserError(
                f"namespace {settings.namespace} holds no pod of {of} that was applied by hand: is it the right one?"
            )
    stored = sorted(
        {pod.campaign_id for pod in pods if pod.campaign_id and pod.outcome in (Outcome.STORED, Outcome.FAILED)}
    )
    if as_json:
        print_json({"pods": pods, "campaigns": stored})
    else:
        console().print(rich_table(collected_table(pods)))
        for name in stored:
            typer.echo(f"trainbench check {name}")
    raise typer.Exit(ExitCode.RED if any(pod.outcome is Outcome.LEFT_OUT for pod in pods) else ExitCode.OK)
