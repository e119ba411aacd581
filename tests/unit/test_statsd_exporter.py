"""The alert rules and the dashboard on a real Prometheus, fed by Airflow's StatsD client through Prometheus' own
statsd-exporter with our mapping.

Debian and PyPI have no statsd-exporter: its program must be on the path. Without it these tests are skipped, in CI too;
test_prometheus.py checks the mapping by its rules.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple
from urllib.request import urlopen

import pytest

from bench_image.process.parent_death import die_with_parent
from tests.builders.needed import program
from tests.builders.ports import free_port
from tests.builders.prometheus import Prometheus, prometheus, wait_until
from tests.unit.test_prometheus import ALERTS, METRICS, PANELS, RULES, expression, record_nights, send

EXPORTER = shutil.which("statsd_exporter") or shutil.which("prometheus-statsd-exporter")
pytestmark = pytest.mark.skipif(EXPORTER is None, reason="there is no statsd_exporter on the path")
# With dots as two underlines: a dot divides the parts of a StatsD name.
RENAMED = {(alert, node.replace(".", "__")) for alert, node in ALERTS}


class Fed(NamedTuple):
    """`series`: lines of ours in the exporter's text."""

    server: Prometheus
    series: list[str]
    num_sent: int


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed]:
    program("prometheus", "prometheus")
    folder, web, udp = tmp_path_factory.mktemp("statsd"), f"127.0.0.1:{free_port()}", free_port()
    record_nights(folder)
    command = [
        str(EXPORTER),
        f"--web.listen-address={web}",
        f"--statsd.listen-udp=127.0.0.1:{udp}",
        "--statsd.listen-tcp=",
        f"--statsd.mapping-config={METRICS / 'statsd-mapping.yaml'}",
    ]
    with (folder / "log").open("w") as log:
        exporter = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)
    try:
        with prometheus(tmp_path_factory.mktemp("prometheus"), web, [RULES]) as server:
            client = {"AIRFLOW__METRICS__STATSD_ON": "True", "AIRFLOW__METRICS__STATSD_PORT": str(udp)}
            num_sent = send(folder, client | {"AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1"})
            wait_until(lambda: server.alerts() >= RENAMED, server.alerts)
            yield Fed(server, _series(web), num_sent)
    finally:
        exporter.terminate()
        exporter.wait(timeout=120)


def _series(web: str) -> list[str]:
    with urlopen(f"http://{web}/metrics", timeout=60) as reply:
        return [line for line in reply.read().decode().splitlines() if line.startswith("airflow_trainbench_")]


def test_each_gauge_that_airflow_sends_is_one_series(fed: Fed) -> None:
    assert len(fed.series) == fed.num_sent


def test_prometheus_raises_the_alerts_of_this_night_and_no_others(fed: Fed) -> None:
    assert fed.server.alerts() == RENAMED


@pytest.mark.parametrize("panel", PANELS)
def test_each_query_of_the_dashboard_gives_data(fed: Fed, panel: str) -> None:
    assert fed.server.query(expression(panel)), expression(panel)


def test_the_dashboard_shows_rates_and_deviations(fed: Fed) -> None:
    """A negative gauge reaches the exporter as 0 and a difference, for StatsD reads a sign as one."""
    deviations = fed.server.values("airflow_trainbench_node_deviation_pct")

    assert sorted(fed.server.values(expression("Samples/s"))) == [9.0, 9.6, 10.0, 10.0]
    assert sorted(deviations) == pytest.approx([-10.0, -4.0, 0.0, 0.0])
