"""Facts of Airflow, store, history and the local interpreter -> checks."""

from __future__ import annotations

from collections.abc import Iterator

from trainbench.cluster.doctor_check import Check, fail, ok, warn
from trainbench.cluster.doctor_facts import Facts
from trainbench.cluster.installation_facts import DEEPSPEED, PROVIDER, AirflowFacts, ImageFacts, Unknown, UnsentFacts
from trainbench.core.formats import listing
from trainbench.history.database import HISTORY_ENV
from trainbench.results.store_files import STORE_ENV
from trainbench.settings.channels import NOTIFY_ENV
from trainbench.settings.environment import Launcher

MIN_AIRFLOW, MIN_PROVIDER = (3, 3), (10, 25)
LITTLE_DISK_BYTES, NO_DISK_BYTES = 10_000_000_000, 500_000_000


def airflow_checks(facts: Facts) -> Iterator[Check]:
    if facts.airflow is None:
        return
    name = facts.settings.kubernetes_connection
    if isinstance(facts.airflow, Unknown):
        advice = f"make the connection '{name}' of type kubernetes, or set TRAINBENCH_KUBERNETES_CONNECTION"
        yield fail("Airflow", f"the connection '{name}' cannot be read: {facts.airflow.reason}", advice)
        return
    yield _versions(facts.airflow)
    yield _connection(facts.airflow, facts)


def site_checks(facts: Facts) -> Iterator[Check]:
    if facts.image is not None:
        yield _interpreter(facts)
    if isinstance(facts.image, ImageFacts) and facts.image.version:
        yield _local_gpus(facts.image)
    yield _store(facts)
    yield _history(facts)
    if facts.settings.notify:
        yield _notifications(facts)


def _versions(airflow: AirflowFacts) -> Check:
    summary = f"Airflow {airflow.version or 'not installed'}, provider {airflow.provider or 'not installed'}"
    if _number(airflow.version) < MIN_AIRFLOW:
        return fail("Airflow", summary, f"install apache-airflow {_dotted(MIN_AIRFLOW)} or later")
    if _number(airflow.provider) < MIN_PROVIDER:
        return fail("Airflow", summary, f"install {PROVIDER} {_dotted(MIN_PROVIDER)} or later")
    return ok("Airflow", summary)


def _connection(airflow: AirflowFacts, facts: Facts) -> Check:
    name = f"'{airflow.connection_id}'"
    if facts.kubeconfig_env and airflow.kube_config_path:
        return fail(
            "connection",
            f"{name} has a kube_config_path, and the environment has KUBECONFIG={facts.kubeconfig_env}: "
            "deferred pods fail with 'mutually exclusive'",
            "unset KUBECONFIG where Airflow runs",
        )
    return ok("connection", name)


def _interpreter(facts: Facts) -> Check:
    python = facts.settings.local_image.python
    advice = facts.settings.local_image.remedy
    if facts.image is None or isinstance(facts.image, Unknown):
        reason = facts.image.reason if facts.image else "not checked"
        return fail("interpreter", f"{python} does not run: {reason}", advice)
    if facts.image.version is None:
        return fail("interpreter", facts.settings.local_image.absent, advice)
    if missing := set(facts.image.missing) - {DEEPSPEED}:
        return fail("interpreter", f"{python} lacks {', '.join(sorted(missing))}", advice)
    if facts.image.missing:
        summary = f"{python} lacks {DEEPSPEED}: zero2 and zero3 cannot run"
        return warn("interpreter", summary, "run `pip install deepspeed` in its environment")
    return ok("interpreter", f"{python}, Python {facts.image.version}, has the training stack")


def _local_gpus(image: ImageFacts) -> Check:
    """No warning without a GPU: trials run on the CPU."""
    if image.gpus is None:
        return ok("GPUs", "nvidia-smi lists none: only trials on the CPU can run here")
    return ok("GPUs", f"{image.gpus.count} x {image.gpus.product}, {image.gpus.memory_bytes / 1e9:.1f} GB each")


def _store(facts: Facts) -> Check:
    store = facts.store
    if isinstance(store, Unknown):
        return fail("store", store.reason, f"check {STORE_ENV}, its credentials and the network")
    summary = f"{store.address}: written, read and deleted"
    if store.free_bytes is not None:
        summary += f"; {store.free_bytes / 1e9:,.1f} GB free"
        if store.free_bytes < NO_DISK_BYTES:
            return fail("store", summary, f"free space, or set {STORE_ENV} to another place")
        if store.free_bytes < LITTLE_DISK_BYTES:
            return warn("store", summary, f"free space, or set {STORE_ENV} to another place")
    if facts.settings.launcher is Launcher.KUBERNETES and not store.is_chosen:
        advice = f"set {STORE_ENV} to a folder that all Airflow workers share, or to s3://... or gs://..."
        return warn("store", f"{summary}; it is the default folder, which other workers do not see", advice)
    return ok("store", summary)


def _history(facts: Facts) -> Check:
    history = facts.history
    if isinstance(history, Unknown):
        return fail("history", history.reason, f"check {HISTORY_ENV}, and that the database answers")
    if not history.is_known:
        summary = f"{history.where} is at revision {history.revision}, which this version does not know"
        return fail("history", summary, f"set {HISTORY_ENV} to an empty database, then run trainbench reindex")
    if history.revision is None:
        return ok("history", f"{history.where} is empty: the first run makes its tables")
    return ok("history", f"{history.where}, revision {history.revision}")


def _notifications(facts: Facts) -> Check:
    """The check of the notice channels; at worst a warning, because a night without messages still judges its nodes."""
    names = ", ".join(channel.name for channel in facts.settings.notify)
    if isinstance(facts.channels, Unknown):
        return warn("notifications", f"{names}: {facts.channels.reason}", f"check {NOTIFY_ENV}")
    wrong = [f"{channel.name}: {channel.problem}" for channel in facts.channels or () if channel.problem]
    if wrong:
        return warn("notifications", "; ".join(wrong), f"make the connection in Airflow, or change {NOTIFY_ENV}")
    if isinstance(facts.unsent, UnsentFacts) and facts.unsent.notices:
        advice = "the next run of the DAG tries again what failed; the log of its task 'notify' says more"
        return warn("notifications", f"not sent: {listing(facts.unsent.notices, most=3)}", advice)
    looked = "" if facts.channels is not None else "; their connections were not looked at"
    return ok("notifications", f"{names}{looked}")


def _number(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in (version or "0").split(".")[:2] if part.isdecimal())


def _dotted(number: tuple[int, ...]) -> str:
    return ".".join(map(str, number))
