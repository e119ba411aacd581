"""Commands about the cluster or this machine: `doctor`, `housekeeping`, `collect`, `result`, `watch`, `nodes`."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli.base import (
    App,
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
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable

    from trainbench.cluster.doctor_check import Check
    from trainbench.cluster.housekeeping import Swept
    from trainbench.cluster.kubernetes_api import Cluster
    from trainbench.cluster.marked_nodes import NodeOutcome
    from trainbench.cluster.running_pods import LivePod
    from trainbench.settings.environment import Settings


app = App()

Kubeconfig = Annotated[
    str | None, typer.Option(help="A kubeconfig file to use instead of the Airflow connection.", metavar="FILE")
]
Context = Annotated[str | None, typer.Option(help="The context of the kubeconfig.", metavar="NAME")]


def settings_of_site(kubeconfig: str | None, context: str | None) -> Settings:
    """The settings. Where none names the launcher and no cluster is configured, the launcher is the local one."""
    from trainbench.cluster.kubernetes_api import is_configured
    from trainbench.settings.environment import Launcher, read_settings

    settings = read_settings()
    if "launcher" in settings.model_fields_set or kubeconfig or context or is_configured(settings):
        return settings
    print_error("no cluster is configured: this machine only; for a cluster set TRAINBENCH_LAUNCHER=kubernetes")
    return settings.model_copy(update={"launcher": Launcher.LOCAL})


@app.command()
def doctor(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also run one pod with the bench image and one GPU; takes minutes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that everything is ready for a benchmark; name each problem and its remedy."""
    from trainbench.cluster.doctor import examine, refusal, verdict
    from trainbench.reporting.terminal import plain

    with user_errors():
        settings = settings_of_site(kubeconfig, context)
    opened = _cluster_opener(settings, kubeconfig, context) if kubeconfig or context else None
    checks = examine(settings, opened=opened, with_probe=probe)
    is_ready = refusal(checks) is None
    if as_json:
        print_json({"ready": is_ready, "checks": checks})
    else:
        shown = console()
        shown.print(_checks_table(checks))
        shown.print(plain(verdict(checks)))
    raise typer.Exit(ExitCode.OK if is_ready else ExitCode.RED)


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
    as_json: AsJson = False,
) -> None:
    """List leaked pods and expired artefacts of trainbench. Deletes nothing without --delete."""
    from trainbench.cluster.housekeeping import sweep_artefacts
    from trainbench.results.artefacts import open_store
    from trainbench.settings.environment import Launcher

    with user_errors():
        settings = settings_of_site(kubeconfig, context)
        days = settings.retention_days if retention_days is None else retention_days
    problems: list[str] = []
    pods = artefacts = None
    if settings.launcher is Launcher.KUBERNETES:
        with _collected(problems):
            opened = _cluster_opener(settings, kubeconfig, context)
            from trainbench.cluster.housekeeping import Liveness, Rules, sweep_pods
            from trainbench.pods.manifests import installation_labels
            from trainbench.settings.environment import Housekeeping

            # Only a task may read Airflow's DAG runs.
            rules, liveness = Rules(trust_age=force), lambda _: Liveness.NOT_KNOWN
            mode = Housekeeping.DELETE if delete else Housekeeping.REPORT
            labels, store = installation_labels(settings), open_store(store_url)
            pods = sweep_pods(opened(), labels, liveness, rules, mode, store, datetime.now(UTC))
    else:
        print_error("the local launcher leaves no pods: only artefacts are listed")
    with _collected(problems):
        artefacts = sweep_artefacts(open_store(store_url), days, delete, datetime.now(UTC))
    _print_swept(pods, artefacts, problems, as_json)
    is_left = any(item.fault for item in (*(pods or ()), *(artefacts or ())))
    raise typer.Exit(ExitCode.USAGE if problems or is_left else ExitCode.OK)


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    """Adds an unreachable cluster or store to `problems`: the other one is still swept."""
    from trainbench.cluster.kubernetes_api import ClusterError
    from trainbench.results.store_files import StoreError

    try:
        yield
    except (ClusterError, StoreError) as error:
        problems.append(str(error))


def _cluster_opener(settings: Settings, kubeconfig: str | None, context: str | None) -> Callable[[], Cluster]:
    from trainbench.cluster.kubernetes_api import open_cluster

    return partial(open_cluster, settings, kubeconfig, context)


def _print_swept(
    pods: Sequence[Swept] | None, artefacts: Sequence[Swept] | None, problems: Sequence[str], as_json: bool
) -> None:
    """Print what was swept. `pods` or `artefacts` None: not examined, for a reason in `problems`."""
    from trainbench.cluster.housekeeping import artefacts_table, document, pods_table, summary
    from trainbench.reporting.terminal import plain, rich_table

    for problem in problems:
        print_error(problem)
    if as_json:
        lists = {"pods": pods, "artefacts": artefacts}
        documents = {name: None if swept is None else document(swept) for name, swept in lists.items()}
        print_json({**documents, "problems": list(problems)})
        return
    shown = console()
    for swept, noun, table in ((pods, "pod", pods_table), (artefacts, "folder", artefacts_table)):
        if swept is None:
            continue
        content = table(swept)
        if content.rows:
            shown.print(rich_table(content))
        shown.print(plain(summary(swept, noun)))


def _checks_table(checks: Sequence[Check]) -> RichTable:
    """The sign carries the tone: long coloured sentences are hard to read."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    from trainbench.cluster.doctor import table
    from trainbench.reporting.terminal import STYLES

    content = table(checks)
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in content.names:
        shown.add_column(name, overflow="fold")
    for row in content.rows:
        sign, *rest = row.texts
        shown.add_row(Text(sign, style=STYLES[row.tone]), *map(Text, rest))
    return shown


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


nodes_app = App(help="Nodes that trainbench marked because they are red, so that other work keeps away.")


@nodes_app.command("list")
def list_(kubeconfig: Kubeconfig = None, context: Context = None, as_json: AsJson = False) -> None:
    """List all marked nodes of the cluster: since when, why, and by whom."""
    from trainbench.cluster.kubernetes_api import open_cluster
    from trainbench.cluster.marked_nodes import marked_nodes
    from trainbench.settings.environment import read_settings

    with user_errors(), _cluster_errors():
        settings = read_settings()
        outcomes = marked_nodes(open_cluster(settings, kubeconfig, context), settings)
    _show(outcomes, as_json)


@nodes_app.command()
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
    from trainbench.cluster.kubernetes_api import open_cluster
    from trainbench.cluster.marked_nodes import Outcome, free_nodes
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
    from trainbench.cluster.marked_nodes import outcomes_table
    from trainbench.reporting.terminal import rich_table

    if as_json:
        print_json({"nodes": [each.document for each in outcomes]})
    elif outcomes:
        console().print(rich_table(outcomes_table(outcomes)))
    else:
        typer.echo("no node is marked")
    raise typer.Exit(ExitCode.USAGE if any(each.fault for each in outcomes) else ExitCode.OK)
