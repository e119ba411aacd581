"""The commands `collect` and `result`: results of pods, out of the cluster into the store and out of any log."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
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


@app.command()
def result(
    file: Annotated[str | None, typer.Argument(help="The log. Default: standard input.", metavar="FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the result that a pod's log holds, as JSON: `kubectl logs POD | trainbench result`."""
    from bench_image.contract.result_lines import ResultLinesError, ResultReader
    from trainbench.core.user_error import UserError

    with user_errors():
        try:
            raw = Path(file).open("rb") if file else sys.stdin.buffer  # noqa: SIM115
            with io.TextIOWrapper(raw, encoding="utf-8", errors="replace") as log:
                text = ResultReader(log).text()
        except OSError as error:
            raise UserError(f"the log {file or 'on standard input'} cannot be read: {error.strerror}") from None
        except ResultLinesError as error:
            raise UserError(f"{file or 'standard input'}: {error}") from None
    if as_json:
        print_json(json.loads(text))
    else:
        typer.echo(text)
