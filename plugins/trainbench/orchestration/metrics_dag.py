"""Builds the DAG `metrics`: the fleet as gauges of Airflow's own metrics client, after each campaign and every hour."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, task
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.observability import stats

from trainbench.orchestration.dag_ids import our_dag
from trainbench.orchestration.dag_tasks import BREACHES
from trainbench.settings.environment import read_settings

if TYPE_CHECKING:
    from trainbench.alerting.gauges import Client, Gauge

HOURLY = "20 * * * *"
OTEL_SERIES = 2000  # of one name: the SDK's limit, which Airflow does not raise; it folds the rest into one series
STATSD_CHARS = 250  # Airflow drops a longer name
STATSD_BYTES = 1432  # of a datagram: what an Ethernet frame holds
BURST, PAUSE_S = 100, 0.02  # StatsD is UDP: a socket's usual buffer holds some 200 small datagrams, and loses the rest
DOC = f"""\
**Each node's state, samples/s, deviation, open notices, last verdict and spend, where your other metrics are.**
Runs when nodes were judged, and every hour, so that acknowledgements and a restarted exporter do not wait for a night.
Starts no pod. This DAG exists only where Airflow's own metrics are on: `[metrics] statsd_on`, `statsd_datadog_enabled`
or `otel_on`.

No benchmark fails where the metrics server is down: only this DAG sends the gauges. Names, labels and alert rules:
docs/metrics.md. `TRAINBENCH_SCHEDULE_METRICS` takes another time than `{HOURLY}`; `none` leaves it to be started
by hand, and so does the local launcher.
"""
log = logging.getLogger(__name__)


def metrics_are_on() -> bool:
    return any(conf.getboolean("metrics", name) for name in ("statsd_datadog_enabled", "statsd_on", "otel_on"))


def build_metrics(name: str) -> DAG:
    with our_dag(
        name,
        read_settings(),
        "Metrics",
        DOC,
        HOURLY,
        asset=BREACHES,
        dagrun_timeout=timedelta(minutes=30),
        tags=["trainbench", "upkeep"],
    ) as dag:
        send_gauges()
    return dag


@task(task_id="send")
def send_gauges() -> int:
    """Reads the history, sends each gauge, returns how many were sent. Fails only where the history cannot be read."""
    from trainbench.alerting.gauges import client_points, gauges
    from trainbench.history.database import HistoryError
    from trainbench.history.history import open_history
    from trainbench.results.artefacts import open_store
    from trainbench.results.store_files import StoreError

    settings, now = read_settings(), datetime.now(UTC)
    try:
        state = open_history(settings.history_url, open_store(settings.store)).fleet_state(now, settings.fresh)
    except (HistoryError, StoreError) as error:
        raise AirflowFailException(str(error)) from None
    made = client_points(gauges(state, now), client())
    return send(made.points, made.left_out)


def client() -> Client:
    """The limits of Airflow's metrics client: the first that is on, in Airflow's order."""
    from trainbench.alerting.gauges import Client

    if conf.getboolean("metrics", "statsd_datadog_enabled"):
        return Client(has_labels=conf.getboolean("metrics", "statsd_datadog_metrics_tags"))
    if conf.getboolean("metrics", "statsd_on"):
        return Client(conf.getboolean("metrics", "statsd_influxdb_enabled"), max_chars=STATSD_CHARS)
    return Client(has_labels=True, max_series=OTEL_SERIES)


def send(points: Iterable[Gauge], left_out: Iterable[str] = ()) -> int:
    """Returns how many were sent. What could not be sent is one warning."""
    num_sent, problems = 0, list(left_out)
    try:
        _keep_gauges_whole()
        for point in points:
            stats.gauge(point.name, point.value, tags=dict(point.labels) or None)
            num_sent += 1
            if num_sent % BURST == 0:
                time.sleep(PAUSE_S)
    except Exception as error:  # of any client: none of them may fail the task
        problems.append(f"the metrics client failed after {num_sent} gauges: {type(error).__name__}: {error}")
    if problems:
        log.warning("not every gauge was sent: %s", "; ".join(problems))
    return num_sent


def _keep_gauges_whole() -> None:
    """Let a negative gauge be one datagram. StatsD takes it as two lines, 0 and a difference. Airflow 3.3 passes its
    option `statsd_ipv6` to the StatsD client as the size of a datagram, so that each line goes alone, and where the
    first is lost the server shows a sum.
    """
    try:
        from airflow.sdk._shared.observability.metrics.stats import _get_backend

        client: Any = getattr(_get_backend(), "statsd", None)
    except ImportError:  # another version of Airflow
        return
    if isinstance(getattr(client, "_maxudpsize", None), bool):
        client._maxudpsize = STATSD_BYTES
