"""The gauges through Airflow's own metrics client: over a real UDP socket, and over OTLP from a process of its own."""

from __future__ import annotations

import importlib.util
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils

from tests.builders.needed import missing
from tests.builders.three_nights import three_nights
from trainbench.alerting.gauges import Client, Gauge
from trainbench.history.history import open_history
from trainbench.orchestration import metrics_dag
from trainbench.orchestration.metrics_dag import BURST, client, metrics_are_on, send

NODE = Gauge("trainbench.node.condition", 20, {"node": "node-3"})


class Received:
    """The lines that arrived at a UDP socket since the last read."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    def datagrams(self) -> list[str]:
        """Loopback hands a datagram over as it is sent, so nothing is waited for."""
        self._socket.setblocking(False)
        datagrams = []
        while True:
            try:
                datagrams.append(self._socket.recv(65_536).decode())
            except BlockingIOError:
                return datagrams

    def lines(self) -> list[str]:
        return [line for datagram in self.datagrams() for line in datagram.splitlines()]


@pytest.fixture
def received() -> Iterator[Received]:
    """Where a StatsD client can send to."""
    if importlib.util.find_spec("statsd") is None:
        missing("the client of StatsD is not installed: pip install statsd")
    yield (udp := Received())
    udp._socket.close()


@pytest.fixture
def airflow_metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets Airflow's `[metrics]` options and starts its client as a task's process does."""

    def configure(**options: Any) -> None:
        for name, value in options.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", str(value))
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)

    yield configure
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


# ---------------------------------------------------------------- StatsD, a real socket


def test_plain_statsd_gets_the_node_in_the_name(
    received: Received, airflow_metrics: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole task, from the history to the socket. A negative gauge is set to 0 first: "-2" alone would subtract."""
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", f"sqlite:///{tmp_path}/history.sqlite")
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path))
    three_nights(open_history(f"sqlite:///{tmp_path}/history.sqlite"))
    airflow_metrics(statsd_on=True, statsd_host="127.0.0.1", statsd_port=received.port)
    num_sent = metrics_dag.send_gauges.function()
    lines = received.lines()

    assert "airflow.trainbench.node.condition.node-2:21|g" in lines
    assert "airflow.trainbench.node.samples_per_second.node-1.mistral-7b-qlora-single-3d0dea8f5e6d:10.1|g" in lines
    deviation = "airflow.trainbench.node.deviation_pct.node-9.gpt2-qlora-single-1a31f8d302a5"
    assert lines.index(f"{deviation}:-60.0|g") == lines.index(f"{deviation}:0|g") + 1
    assert len({line.split(":")[0] for line in lines}) == num_sent


@pytest.mark.parametrize("ipv6", [False, True])
def test_a_negative_gauge_is_one_datagram(received: Received, airflow_metrics: Callable[..., None], ipv6: bool) -> None:
    """Of two, the second alone would be taken from the last value: -10 % twice is -20 %."""
    airflow_metrics(statsd_on=True, statsd_host="127.0.0.1", statsd_port=received.port, statsd_ipv6=ipv6)
    name = f"trainbench.node.deviation_pct.{'n' * 90}.{'w' * 100}"
    send([Gauge(name, -10.0), NODE])

    assert received.datagrams() == [
        f"airflow.{name}:0|g\nairflow.{name}:-10.0|g",
        "airflow.trainbench.node.condition:20|g",
    ]


def test_influxdbs_statsd_gets_labels(received: Received, airflow_metrics: Callable[..., None]) -> None:
    airflow_metrics(statsd_on=True, statsd_influxdb_enabled=True, statsd_host="127.0.0.1", statsd_port=received.port)
    send([NODE])

    assert client().has_labels
    assert received.lines() == ["airflow.trainbench.node.condition,node=node-3:20|g"]


def test_a_statsd_server_that_is_down_is_nobodys_trouble(
    received: Received, airflow_metrics: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    airflow_metrics(statsd_on=True, statsd_host="127.0.0.1", statsd_port=received.port)
    received._socket.close()

    assert send([NODE] * 3) == 3
    assert caplog.records == []


def test_a_host_that_is_not_known_is_nobodys_trouble(received: Received, airflow_metrics: Callable[..., None]) -> None:
    airflow_metrics(statsd_on=True, statsd_host="no-such-host.invalid")
    assert send([NODE]) == 1


# ---------------------------------------------------------------- any client


def test_a_client_that_fails_is_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    sent: list[tuple[str, float, Any]] = []

    def gauge(name: str, value: float, *, tags: Any) -> None:
        if len(sent) == 2:
            raise OSError("the socket is gone")
        sent.append((name, value, tags))

    monkeypatch.setattr(stats, "gauge", gauge)
    with caplog.at_level(logging.WARNING):
        assert send([NODE] * 5, ["1 gauge of a: the value is not a finite number"]) == 2

    assert [record.getMessage() for record in caplog.records] == [
        "not every gauge was sent: 1 gauge of a: the value is not a finite number; "
        "the metrics client failed after 2 gauges: OSError: the socket is gone"
    ]
    assert sent[0] == ("trainbench.node.condition", 20, {"node": "node-3"})


def test_a_client_that_cannot_be_made_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise ValueError("statsd_port is no number")

    monkeypatch.setattr("airflow.sdk._shared.observability.metrics.stats._get_backend", refuse)
    with caplog.at_level(logging.WARNING):
        assert send([NODE]) == 0

    (record,) = caplog.records
    assert "failed after 0 gauges: ValueError: statsd_port is no number" in record.getMessage()


def test_a_history_that_cannot_be_read_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", "sqlite:////proc/none/history.sqlite")
    with pytest.raises(AirflowFailException, match="history sqlite:////proc/none"):
        metrics_dag.send_gauges.function()


def test_many_gauges_are_sent_in_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)

    assert send([NODE] * (2 * BURST + 1)) == 2 * BURST + 1
    assert len(pauses) == 2


# ---------------------------------------------------------------- when, and with which client


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"otel_on": True}, Client(has_labels=True, max_series=2000)),
        ({"statsd_on": True, "otel_on": True}, Client(has_labels=False, max_chars=250)),
        ({"statsd_on": True, "statsd_influxdb_enabled": True}, Client(has_labels=True, max_chars=250)),
        ({"statsd_datadog_enabled": True, "statsd_on": True}, Client(has_labels=True)),
        ({"statsd_datadog_enabled": True, "statsd_datadog_metrics_tags": False}, Client(has_labels=False)),
    ],
)
def test_it_knows_what_airflows_client_takes(
    options: dict[str, bool], expected: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not metrics_are_on()
    for name, value in options.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", str(value))

    assert metrics_are_on()
    assert client() == expected


@pytest.mark.parametrize("is_on", [True, False])
def test_without_airflows_metrics_there_is_no_dag(is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", str(is_on))
    path = Path(__file__).parents[3] / "dags" / "metrics.py"
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), path, "exec"), names)

    assert ("dag" in names) is is_on
    if is_on:
        (task,) = names["dag"].tasks
        assert (task.task_id, task.retries, [*task.outlets]) == ("send", 0, [])
