"""Commands about the cluster or this machine: `doctor`, `housekeeping`, `collect`, `result`, `watch`, `nodes`."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli import base
from trainbench.cli.base import Context, ExitCode, Kubeconfig, StoreUrl, Who
from trainbench.core.formats import count
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from trainbench.cluster.kubernetes_api import Cluster
    from trainbench.cluster.node_marks import NodeOutcome
    from trainbench.cluster.running_pods import LivePod
    from trainbench.core.tables import Table
    from trainbench.settings.environment import Settings


PANEL = "Cluster and machine"
app = base.App(PANEL)


def settings_of_site(kubeconfig: str | None, context: str | None) -> Settings:
    """The settings. Where none names the launcher and no cluster is configured, the launcher is the local one."""
    from trainbench.cluster.kubernetes_api import is_configured
    from trainbench.settings.environment import Launcher

    settings = base.read_settings()
    if "launcher" in settings.model_fields_set or kubeconfig or context or is_configured(settings):
        return settings
    base.print_error("no cluster is configured: this machine only; for a cluster set TRAINBENCH_LAUNCHER=kubernetes")
    return settings.model_copy(update={"launcher": Launcher.LOCAL})


@contextmanager
def _cluster(settings: Settings, kubeconfig: str | None, context: str | None) -> Iterator[Cluster]:
    """The cluster; an answer that it refuses is an error of the user."""
    from trainbench.cluster.kubernetes_api import ClusterError, open_cluster

    try:
        yield open_cluster(settings, kubeconfig, context)
    except ClusterError as error:
        raise UserError(str(error)) from None


@app.command()
def doctor(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also run one pod with the bench image and one GPU; takes minutes.")
    ] = False,
) -> ExitCode:
    """Check that everything is ready for a benchmark; name each problem and its remedy."""
    from trainbench.cluster.doctor import examine, refusal, table, verdict
    from trainbench.cluster.kubernetes_api import open_cluster

    settings = settings_of_site(kubeconfig, context)
    opened = partial(open_cluster, settings, kubeconfig, context) if kubeconfig or context else None
    checks = examine(settings, opened=opened, with_probe=probe)
    is_ready = refusal(checks) is None
    base.answer({"ready": is_ready, "checks": checks}, table(checks), verdict(checks))
    return ExitCode.OK if is_ready else ExitCode.RED


@app.command()
def housekeeping(
    delete: Annotated[bool, typer.Option("--delete", help="Delete them. Default: only list them.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Treat a pod as leaked by its age alone: the command line cannot see whether its DAG run is active.",
        ),
    ] = False,
    retention_days: Annotated[
        int | None,
        typer.Option(min=0, help="Days to keep artefacts; 0: for ever. Default: TRAINBENCH_RETENTION_DAYS, else 180."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    store_url: StoreUrl = None,
) -> ExitCode:
    """List leaked pods and expired artefacts of trainbench. Deletes nothing without --delete."""
    from trainbench.cluster import housekeeping as sweeping
    from trainbench.cluster.housekeeping import Liveness
    from trainbench.pods.manifests import installation_labels
    from trainbench.settings.environment import Housekeeping, Launcher

    settings, now = settings_of_site(kubeconfig, context), datetime.now(UTC)
    mode = Housekeeping.DELETE if delete else Housekeeping.REPORT
    days = settings.retention_days if retention_days is None else retention_days

    def pods() -> Sequence[sweeping.Swept]:
        with _cluster(settings, kubeconfig, context) as cluster:
            # Only a task may read Airflow's DAG runs.
            labels, store = installation_labels(settings), base.open_store(store_url)
            return sweeping.sweep_pods(
                cluster, labels, lambda _: Liveness.NOT_KNOWN, mode, store, now, trusts_age=force
            )

    parts: dict[str, Callable[[], Sequence[sweeping.Swept]]] = {
        "pods": pods,
        "artefacts": lambda: sweeping.sweep_artefacts(base.open_store(store_url), days, delete, now),
    }
    if settings.launcher is not Launcher.KUBERNETES:
        base.print_error("the local launcher leaves no pods: only artefacts are listed")
        del parts["pods"]
    swept: dict[str, Sequence[sweeping.Swept] | None] = {"pods": None, "artefacts": None}
    problems: list[str] = []
    for name, part in parts.items():
        try:
            swept[name] = part()
        except UserError as error:  # without the cluster the store is swept, and the other way round
            problems.append(str(error))
            base.print_error(str(error))
    if not base.print_json({**swept, "problems": problems}):
        for noun, items in zip(("pod", "folder"), swept.values(), strict=True):
            if items is not None:
                base.show(sweeping.table(items), sweeping.summary(items, noun))
    is_left = any(sweeping.faults(items or ()) for items in swept.values())
    return ExitCode.USAGE if problems or is_left else ExitCode.OK


@app.command()
def collect(
    campaign: Annotated[
        str | None, typer.Argument(help="Id of a campaign. Default: every campaign that has pods.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    store_url: StoreUrl = None,
) -> ExitCode:
    """Store results and logs of finished pods that `plan --manifests | kubectl apply -f -` made; may be repeated."""
    from trainbench.cluster.collect_pods import Outcome, collect_pods, collected_table

    settings, store = base.read_settings(), base.open_store(store_url)
    with _cluster(settings, kubeconfig, context) as cluster:
        pods = collect_pods(cluster, settings, store, campaign, datetime.now(UTC))
    if not pods:
        of = f"campaign {campaign}" if campaign else "trainbench"
        raise UserError(
            f"namespace {settings.namespace} holds no pod of {of} that was applied by hand: is it the right one?"
        )
    kept = (Outcome.STORED, Outcome.FAILED)
    stored = sorted({pod.campaign_id for pod in pods if pod.campaign_id and pod.outcome in kept})
    checks = [f"trainbench check {name}" for name in stored]
    base.answer({"pods": pods, "campaigns": stored}, collected_table(pods), *checks)
    return ExitCode.RED if any(pod.outcome is Outcome.LEFT_OUT for pod in pods) else ExitCode.OK


@app.command()
def result(
    file: Annotated[str | None, typer.Argument(help="The log. Default: standard input.", metavar="FILE")] = None,
) -> None:
    """Print the result that a pod's log holds, as JSON: `kubectl logs POD | trainbench result`."""
    from bench_image.contract.result_lines import ResultLinesError, ResultReader

    try:
        raw = Path(file).open("rb") if file else sys.stdin.buffer  # noqa: SIM115
        with io.TextIOWrapper(raw, encoding="utf-8", errors="replace") as log:
            text = ResultReader(log).text()
    except OSError as error:
        raise UserError(f"the log {file or 'on standard input'} cannot be read: {error.strerror}") from None
    except ResultLinesError as error:
        raise UserError(f"{file or 'standard input'}: {error}") from None
    if not base.print_json(json.loads(text)):
        typer.echo(text)


@app.command()
def watch(
    once: Annotated[bool, typer.Option("--once", help="Show the present state and exit.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", min=0.5, help="Seconds between two updates.")] = 2.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> ExitCode:
    """Show the running pods in the cluster and on this machine: step, samples/s, GPU utilisation, temperature.

    Figures come from the last line of each pod's log; a pod writes none while it measures. Ctrl-C stops no pod.
    """
    settings = settings_of_site(kubeconfig, context)
    if once or base.CURRENT.get() or not base.console().is_terminal:
        pods, problem = _look(settings, kubeconfig, context)
        if problem:
            base.print_error(problem)
        if not base.print_json({"pods": pods, "problem": problem}):
            base.show(_shown(pods, None))
        return ExitCode.USAGE if problem and not pods else ExitCode.OK
    # Update until Ctrl-C. An unreachable cluster is reported and queried again.
    from rich.live import Live

    from trainbench.reporting.terminal import titled

    try:
        with Live(console=base.console(), auto_refresh=False, screen=False) as shown:
            while True:
                shown.update(titled(_shown(*_look(settings, kubeconfig, context))), refresh=True)
                time.sleep(interval_s)
    except KeyboardInterrupt:
        return ExitCode.OK


def _look(settings: Settings, kubeconfig: str | None, context: str | None) -> tuple[tuple[LivePod, ...], str | None]:
    """The running pods, and why the cluster could not be queried."""
    from trainbench.cluster.running_pods import cluster_pods, local_pods
    from trainbench.pods.manifests import installation_labels
    from trainbench.settings.environment import Launcher

    now = datetime.now(UTC)
    local = local_pods(now)
    if settings.launcher is Launcher.LOCAL and not (kubeconfig or context):
        return local, None
    try:
        with _cluster(settings, kubeconfig, context) as cluster:
            return (*cluster_pods(cluster, installation_labels(settings), now), *local), None
    except UserError as error:
        return local, f"{error}; TRAINBENCH_LAUNCHER=local looks at this machine only"


def _shown(pods: tuple[LivePod, ...], problem: str | None) -> Table:
    from trainbench.cluster.running_pods import running_pods_table

    running = sum(pod.state == "Running" for pod in pods)
    head = f"{count(len(pods), 'pod')} of ours, {running} running" if pods else "No pod of ours runs."
    notes = (problem,) if problem else ()
    return replace(running_pods_table(pods), title=f"{head} ({datetime.now():%H:%M:%S})", notes=notes)


nodes_app = base.App(PANEL, help="Nodes that trainbench marked because they are red, so that other work keeps away.")


@nodes_app.command("list")
def list_(kubeconfig: Kubeconfig = None, context: Context = None) -> ExitCode:
    """List all marked nodes of the cluster: since when, why, and by whom."""
    from trainbench.cluster.node_marks import marked_nodes

    settings = base.read_settings()
    with _cluster(settings, kubeconfig, context) as cluster:
        return _show(marked_nodes(cluster, settings))


@nodes_app.command()
def free(
    nodes: Annotated[list[str] | None, typer.Argument(help="Nodes to free.", metavar="NODE")] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="All nodes that this installation marked.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be freed.")] = False,
    who: Who = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    store_url: StoreUrl = None,
) -> ExitCode:
    """Take the marks off nodes: other work may run there again. A later red run marks a node anew."""
    from trainbench.cluster.node_marks import Outcome, free_nodes
    from trainbench.history.database import HistoryError

    settings = base.read_settings()
    if all_nodes == bool(nodes):
        raise UserError("which nodes are to be freed? Name them, or give --all")
    by = who or base.user_name()
    with _cluster(settings, kubeconfig, context) as cluster:
        outcomes = tuple(free_nodes(cluster, settings, nodes or None, dry_run))
    free_now = [each.node for each in outcomes if each.outcome in (Outcome.FREED, Outcome.NOT_MARKED)]
    if free_now and not dry_run:
        try:  # end the nodes' warnings
            base.open_history(store_url).end_marks(free_now, by, datetime.now(UTC))
        except HistoryError as error:
            base.print_error(f"the nodes are free, and the history does not know it until the next run: {error}")
    return _show(outcomes)


def _show(outcomes: Sequence[NodeOutcome]) -> ExitCode:
    from trainbench.cluster.node_marks import outcomes_table

    shown = outcomes_table(outcomes) if outcomes else "no node is marked"
    base.answer({"nodes": outcomes}, shown)
    return ExitCode.USAGE if any(each.fault for each in outcomes) else ExitCode.OK
