"""The checks of the installation: Airflow and its connection, store, history, notices, the local interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trainbench.cluster.doctor_check import Check, Site, examination, fail, ok, unknown, warn
from trainbench.cluster.local_nodes import visible_gpus
from trainbench.core.formats import listing, one_line
from trainbench.history.database import HISTORY_ENV
from trainbench.pods.time_limits import OUTAGE_S
from trainbench.results.artefacts import open_store
from trainbench.results.store_files import STORE_ENV
from trainbench.settings.campaign_file import CampaignFileError, read_campaign_file
from trainbench.settings.channels import NOTIFY_ENV, Channel
from trainbench.settings.environment import CAMPAIGNS_ENV, Launcher, Settings, campaign_files

PROVIDER = "apache-airflow-providers-cncf-kubernetes"
MIN_VERSIONS = {"apache-airflow": (3, 3), PROVIDER: (10, 25)}
DEEPSPEED = "deepspeed"
IMAGE_MODULES = ("torch", "transformers", "peft", "bitsandbytes", "psutil", "bench_image", DEEPSPEED)
INTERPRETER_TIMEOUT_S = 20
SENDING_MINUTES = 15  # time that sending a notice may take
LITTLE_DISK_BYTES, NO_DISK_BYTES = 10_000_000_000, 500_000_000


@examination(
    lambda site, reason: fail(
        "Airflow",
        f"the connection '{site.settings.kubernetes_connection}' cannot be read: {reason}",
        f"make the connection '{site.settings.kubernetes_connection}' of type kubernetes, or set "
        "TRAINBENCH_KUBERNETES_CONNECTION",
    )
)
def airflow(site: Site) -> Iterator[Check]:
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

    name = site.settings.kubernetes_connection
    KubernetesHook.get_connection(name)  # raises Airflow's errors where it cannot be read
    found = {package: _installed(package) for package in MIN_VERSIONS}
    airflow, provider = (number or "not installed" for number in found.values())
    summary = f"Airflow {airflow}, provider {provider}, connection '{name}'"
    for package, needed in MIN_VERSIONS.items():
        parts = (found[package] or "0").split(".")[:2]
        if tuple(int(part) for part in parts if part.isdecimal()) < needed:
            yield fail("Airflow", summary, f"install {package} {'.'.join(map(str, needed))} or later")
            return
    yield ok("Airflow", summary)
    if not site.settings.deferrable:
        from airflow.sdk.configuration import conf

        failures, every_s = (conf.getint("workers", key) for key in ("max_failed_heartbeats", "min_heartbeat_interval"))
        token_s = conf.getint("execution_api", "jwt_expiration_time")  # renewed when a fifth of it is left
        timeout_s = conf.getint("scheduler", "task_instance_heartbeat_timeout")
        ends_after_s = min(failures * every_s, timeout_s, token_s // 5)
        if ends_after_s < OUTAGE_S:
            yield warn(
                "heartbeats",
                f"where its API server is away for longer than {ends_after_s} s, Airflow ends a task that waits for a "
                f"pod, and with it the pod; trainbench waits for {OUTAGE_S} s",
                "set AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS=400, "
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT=2000 and "
                "AIRFLOW__EXECUTION_API__JWT_EXPIRATION_TIME=10800, or leave out TRAINBENCH_DEFERRABLE=false",
            )


@examination(
    lambda site, reason: fail(
        "interpreter",
        f"{site.settings.local_image.python} does not run: {reason}",
        site.settings.local_image.remedy,
    )
)
def interpreter(site: Site) -> Iterator[Check]:
    """The interpreter that replaces the image: it lists the modules that it can find, without importing them."""
    image = site.settings.local_image
    if not os.access(image.python, os.X_OK):
        yield fail("interpreter", image.absent, image.remedy)
        return
    program = (
        "import importlib.util as u, platform, sys; print(platform.python_version(), "
        "*[name for name in sys.argv[1:] if u.find_spec(name) is None])"
    )
    answer = subprocess.run(
        [image.python, "-c", program, *IMAGE_MODULES],
        env={**os.environ, "PYTHONPATH": image.pythonpath},
        capture_output=True,
        text=True,
        timeout=INTERPRETER_TIMEOUT_S,
        check=True,
    )
    number, *missing = answer.stdout.split()
    if required := sorted({*missing} - {DEEPSPEED}):
        yield fail("interpreter", f"{image.python} lacks {', '.join(required)}", image.remedy)
    elif missing:
        summary = f"{image.python} lacks {DEEPSPEED}: zero2 and zero3 cannot run"
        yield warn("interpreter", summary, "run `pip install deepspeed` in its environment")
    else:
        yield ok("interpreter", f"{image.python}, Python {number}, has the training stack")
    if gpus := visible_gpus():
        yield ok("GPUs", f"{gpus.count} x {gpus.product}, {gpus.memory_bytes / 1e9:.1f} GB each")
    else:  # no warning: trials run on the CPU
        yield ok("GPUs", "nvidia-smi lists none: only trials on the CPU can run here")


@examination(lambda _, reason: fail("store", reason, f"check {STORE_ENV}, its credentials and the network"))
def store(site: Site) -> Iterator[Check]:
    """By writing, reading and deleting a small object."""
    store = open_store(site.settings.store)
    address = store.probe()
    summary, wants_space = f"{address}: written, read and deleted", f"free space, or set {STORE_ENV} to another place"
    if store.is_local:
        free_bytes = shutil.disk_usage(address).free
        summary += f"; {free_bytes / 1e9:,.1f} GB free"
        if free_bytes < LITTLE_DISK_BYTES:
            yield (fail if free_bytes < NO_DISK_BYTES else warn)("store", summary, wants_space)
            return
    if site.settings.launcher is Launcher.KUBERNETES and site.settings.store is None:
        advice = f"set {STORE_ENV} to a folder that all Airflow workers share, or to s3://... or gs://..."
        yield warn("store", f"{summary}; it is the default folder, which other workers do not see", advice)
    else:
        yield ok("store", summary)


@examination(lambda _, reason: fail("history", reason, f"check {HISTORY_ENV}, and that the database answers"))
def history(site: Site) -> Iterator[Check]:
    """By comparing the database's schema with ours; nothing is changed."""
    from sqlalchemy.exc import SQLAlchemyError

    from trainbench.history.database import HistoryError, cause_of, without_secrets
    from trainbench.history.tables import REVISION
    from trainbench.history.upgrade import READS

    engine = _engine(site.settings)
    where = without_secrets(engine.url)
    try:
        revision = _revision(engine)
    except SQLAlchemyError as error:
        raise HistoryError(f"{where}: {cause_of(engine.url, error)}") from None
    if revision is None:
        yield ok("history", f"{where} is empty: the first run makes its tables")
    elif revision in (READS, REVISION):
        yield ok("history", f"{where}, revision {revision}")
    else:
        summary = f"{where} is at revision {revision}, which this version does not know"
        yield fail("history", summary, f"set {HISTORY_ENV} to an empty database, then run trainbench reindex")


@examination(lambda _, reason: warn("notifications", reason, f"check {NOTIFY_ENV}"))
def channels(site: Site) -> Iterator[Check]:
    """By reading each channel's connection; no message is sent. At worst a warning, because a night without messages
    still judges its nodes.
    """
    names = ", ".join(channel.name for channel in site.settings.notify)
    if not site.asks_airflow:
        yield ok("notifications", f"{names}; their connections were not looked at")
    elif wrong := [f"{c.name}: {problem}" for c in site.settings.notify if (problem := channel_problem(c))]:
        yield warn("notifications", "; ".join(wrong), f"make the connection in Airflow, or change {NOTIFY_ENV}")
    else:
        yield ok("notifications", names)


@examination(lambda _, reason: warn("campaign files", reason, f"check {CAMPAIGNS_ENV}"))
def campaigns(site: Site) -> Iterator[Check]:
    """A wrong file has no DAG, and stops none of the others: a warning."""
    files, wrong = campaign_files(site.settings.campaigns), []
    for path in files:
        try:
            read_campaign_file(path)
        except CampaignFileError as error:
            wrong.append(str(error))
    if wrong:
        yield warn("campaign files", "; ".join(wrong), "correct the files: docs/campaign-files.md")
    elif not files:
        yield warn("campaign files", f"no .yaml file in {site.settings.campaigns}", f"check {CAMPAIGNS_ENV}")
    else:
        yield ok("campaign files", ", ".join(path.name for path in files))


def channel_problem(channel: Channel) -> str | None:
    """Why no notice can be sent by this channel; None: its connection exists and has the right type."""
    from airflow.sdk import Connection

    wanted, package = channel.needs
    if _installed(package) is None:
        return f"{package} is not installed"
    try:
        connection = Connection.get(channel.connection)
    except Exception as error:  # Airflow has several errors for a missing connection
        return f"the connection '{channel.connection}' cannot be read: {one_line(str(error))}"
    if connection.conn_type != wanted:
        return f"the connection '{channel.connection}' is of type {connection.conn_type}, not {wanted}"
    return None


@examination(lambda _, reason: unknown("unsent notices", f"not known: {reason}"))
def notices(site: Site) -> Iterator[Check]:
    """Unsent notices of the last days; of a history with another schema nothing can be said."""
    from trainbench.alerting.outbox import DUE_DAYS, Outbox
    from trainbench.history.tables import REVISION

    engine = _engine(site.settings)
    if _revision(engine) != REVISION:
        return
    now = datetime.now(UTC)
    unsent = [
        f"{row.channel}: {row.node or 'a run'} ({row.event}) of {row.claimed_at:%Y-%m-%d %H:%M} UTC, "
        f"{row.problem or 'its sender was stopped'}"
        for row in Outbox(engine).unsent(now - timedelta(days=DUE_DAYS), now - timedelta(minutes=SENDING_MINUTES))
    ]
    if unsent:
        advice = "the next run of the DAG tries again what failed; the log of its task 'notify' says more"
        yield warn("unsent notices", f"not sent: {listing(unsent, most=3)}", advice)


def _engine(settings: Settings) -> Any:
    from trainbench.history.database import connect

    return connect(settings.history_url, open_store(settings.store))


def _revision(engine: Any) -> str | None:
    """Revision of the database's schema; None for a file that does not exist yet, which is not created here."""
    from trainbench.history.database import revision_of

    if engine.dialect.name == "sqlite":
        file = Path(str(engine.url.database)).absolute()
        present = next(path for path in (file, *file.parents) if path.exists())
        if not os.access(present, os.W_OK):
            raise PermissionError(f"{present} cannot be written by this user")
        if present != file:
            return None
    with engine.connect() as connection:
        return revision_of(connection)


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
