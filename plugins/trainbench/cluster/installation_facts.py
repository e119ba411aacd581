"""Facts of the installation: Airflow and its connection, store, history, the local interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.cluster.local_nodes import LocalGpus, visible_gpus
from trainbench.core.formats import one_line
from trainbench.pods.local_pods import LocalImage
from trainbench.results.artefacts import open_store
from trainbench.settings.channels import Channel
from trainbench.settings.environment import Settings

PROVIDER = "apache-airflow-providers-cncf-kubernetes"
DEEPSPEED = "deepspeed"
IMAGE_MODULES = ("torch", "transformers", "peft", "bitsandbytes", "psutil", "bench_image", DEEPSPEED)
INTERPRETER_TIMEOUT_S = 20
SENDING_MINUTES = 15  # time that sending a notice may take


class Unknown(Frozen):
    """A fact that could not be determined, and why."""

    reason: str


class AirflowFacts(Frozen):
    version: str | None
    provider: str | None
    connection_id: str
    kube_config_path: str | None


class StoreFacts(Frozen):
    address: str
    is_local: bool
    is_chosen: bool  # by a setting; otherwise a folder in the working directory
    free_bytes: int | None  # None: an object store


class HistoryFacts(Frozen):
    """Facts of the history. `revision` None: the database is empty or does not exist yet."""

    where: str
    revision: str | None
    is_known: bool  # this version knows the database's revision


class ChannelFacts(Frozen):
    """A channel for notices."""

    name: str
    problem: str | None  # None: its connection exists and has the right type


class UnsentFacts(Frozen):
    """Unsent notices of the last days, one sentence each."""

    notices: tuple[str, ...]


class ImageFacts(Frozen):
    """The interpreter that replaces the image with the local launcher, and this machine's GPUs. `missing`: modules that
    the interpreter lacks.
    """

    python: str
    version: str | None
    missing: tuple[str, ...] = ()
    gpus: LocalGpus | None = None


def airflow_facts(settings: Settings) -> AirflowFacts:
    """The facts of Airflow. Raises Airflow's errors when a connection cannot be read."""
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

    hook: Any = KubernetesHook(conn_id=settings.kubernetes_connection)
    return AirflowFacts(
        version=_installed("apache-airflow"),
        provider=_installed(PROVIDER),
        connection_id=settings.kubernetes_connection,
        kube_config_path=hook._get_field("kube_config_path"),
    )


def channel_facts(settings: Settings) -> tuple[ChannelFacts, ...]:
    """The facts of each channel, by reading its connection; sends no message."""
    return tuple(ChannelFacts(name=channel.name, problem=_channel_problem(channel)) for channel in settings.notify)


def _channel_problem(channel: Channel) -> str | None:
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


def store_facts(settings: Settings) -> StoreFacts:
    """The facts of the store, by writing, reading and deleting a small object. Raises StoreError or the client's
    errors.
    """
    store = open_store(settings.store)
    address = store.probe()
    free_bytes = shutil.disk_usage(address).free if store.is_local else None
    is_chosen = settings.store is not None
    return StoreFacts(address=address, is_local=store.is_local, is_chosen=is_chosen, free_bytes=free_bytes)


def history_facts(settings: Settings) -> HistoryFacts:
    """Open the database and compare its schema with ours; change nothing. Raises HistoryError."""
    from sqlalchemy.exc import SQLAlchemyError

    from trainbench.history.database import HistoryError, cause_of, connect, without_secrets
    from trainbench.history.tables import REVISION
    from trainbench.history.upgrade import READS

    engine = connect(settings.history_url, open_store(settings.store))
    try:
        revision = _revision(engine)
    except SQLAlchemyError as error:
        raise HistoryError(f"{without_secrets(engine.url)}: {cause_of(engine.url, error)}") from None
    return HistoryFacts(
        where=without_secrets(engine.url),
        revision=revision,
        is_known=revision in (None, READS, REVISION),
    )


def unsent_facts(settings: Settings) -> UnsentFacts:
    """Unsent notices; none where the history has another schema. Raises HistoryError."""
    from trainbench.alerting.outbox import DUE_DAYS, Outbox
    from trainbench.history.database import connect
    from trainbench.history.tables import REVISION

    engine = connect(settings.history_url, open_store(settings.store))
    if _revision(engine) != REVISION:
        return UnsentFacts(notices=())
    now = datetime.now(UTC)
    rows = Outbox(engine).unsent(now - timedelta(days=DUE_DAYS), now - timedelta(minutes=SENDING_MINUTES))
    return UnsentFacts(
        notices=tuple(
            f"{row.channel}: {row.node or 'a run'} ({row.event}) of {row.claimed_at:%Y-%m-%d %H:%M} UTC, "
            f"{row.problem or 'its sender was stopped'}"
            for row in rows
        )
    )


def image_facts(image: LocalImage) -> ImageFacts:
    """The facts of the interpreter: the modules that it can find, without importing them."""
    if not os.access(image.python, os.X_OK):
        return ImageFacts(python=image.python, version=None)
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
    return ImageFacts(python=image.python, version=number, missing=tuple(missing), gpus=visible_gpus())


def _revision(engine: Any) -> str | None:
    """Revision of the database's schema; None for a file that does not exist yet, which is not created here."""
    from trainbench.history.database import revision_of

    if engine.dialect.name == "sqlite":
        file = Path(str(engine.url.database))
        if not file.exists():
            _writable(next(parent for parent in file.absolute().parents if parent.exists()))
            return None
        _writable(file)
    with engine.connect() as connection:
        return revision_of(connection)


def _writable(path: Path) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{path} cannot be written by this user")


def _is_json(name: str, value: Any) -> bool:
    return name != "image" and isinstance(value, str)


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
