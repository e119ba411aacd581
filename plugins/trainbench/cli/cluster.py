"""Commands about the cluster or the local machine: `doctor` and `housekeeping`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli.base import AsJson, ExitCode, StoreUrl, console, print_error, print_json, user_errors

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from trainbench.cluster.doctor_check import Check
    from trainbench.cluster.housekeeping import Swept
    from trainbench.cluster.kubernetes_api import Cluster
    from trainbench.settings.environment import Settings

app = typer.Typer()

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
            from trainbench.cluster.housekeeping import sweep_pods
            from trainbench.cluster.leaked_pods import Liveness, Rules
            from trainbench.pods.manifests import installation_labels
            from trainbench.settings.environment import Housekeeping

            # Only a task may read Airflow's DAG runs.
            rules, liveness = Rules(trust_age=force), lambda _: Liveness.NOT_KNOWN
            mode = Housekeeping.DELETE if delete else Housekeeping.REPORT
            pods = sweep_pods(opened(), installation_labels(settings), liveness, rules, mode, datetime.now(UTC))
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
