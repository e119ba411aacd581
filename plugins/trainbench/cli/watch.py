"""The command `watch`: the running pods."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli.base import AsJson, ExitCode, console, print_error, print_json, user_errors
from trainbench.cli.cluster import Context, Kubeconfig, settings_of_site

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trainbench.cluster.running_pods import LivePod
    from trainbench.settings.environment import Settings

app = typer.Typer()


@app.command()
def watch(
    once: Annotated[bool, typer.Option("--once", help="Show the present state and exit.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", min=0.5, help="Seconds between two updates.")] = 2.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: AsJson = False,
) -> None:
    """Show the running pods in the cluster and on this machine: step, samples/s, GPU utilisation, temperature.

    Figures come from the last line of each pod's log; a pod writes none while it measures. Ctrl-C stops no pod.
    """
    with user_errors():
        settings = settings_of_site(kubeconfig, context)
    if once or as_json or not console().is_terminal:
        pods, problem = _look(settings, kubeconfig, context)
        if problem:
            print_error(problem)
        if as_json:
            print_json({"pods": pods, "problem": problem})
        else:
            console().print(_shown(pods, None))
        raise typer.Exit(ExitCode.USAGE if problem and not pods else ExitCode.OK)
    # Update until Ctrl-C. An unreachable cluster is reported and queried again.
    from rich.live import Live

    try:
        with Live(console=console(), auto_refresh=False, screen=False) as shown:
            while True:
                shown.update(_shown(*_look(settings, kubeconfig, context)), refresh=True)
                time.sleep(interval_s)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.OK) from None


def _look(settings: Settings, kubeconfig: str | None, context: str | None) -> tuple[tuple[LivePod, ...], str | None]:
    """The running pods, and why the cluster could not be queried."""
    from trainbench.cluster.kubernetes_api import ClusterError, open_cluster
    from trainbench.cluster.running_pods import cluster_pods, local_pods
    from trainbench.pods.manifests import installation_labels
    from trainbench.settings.environment import Launcher

    now = datetime.now(UTC)
    local = local_pods(now)
    if settings.launcher is Launcher.LOCAL and not (kubeconfig or context):
        return local, None
    try:
        cluster = open_cluster(settings, kubeconfig, context)
        return (*cluster_pods(cluster, installation_labels(settings), now), *local), None
    except ClusterError as error:
        return local, f"{error}; TRAINBENCH_LAUNCHER=local looks at this machine only"


def _shown(pods: tuple[LivePod, ...], problem: str | None) -> RenderableType:
    from rich.console import Group

    from trainbench.cluster.running_pods import running_pods_table
    from trainbench.core.formats import count
    from trainbench.reporting.terminal import plain, rich_table

    running = sum(pod.state == "Running" for pod in pods)
    head = f"{count(len(pods), 'pod')} of ours, {running} running" if pods else "No pod of ours runs."
    parts: list[RenderableType] = [plain(f"{head} ({datetime.now():%H:%M:%S})", style="bold")]
    parts += [rich_table(running_pods_table(pods))] if pods else []
    parts += [plain(problem, style="yellow")] if problem else []
    return Group(*parts)
