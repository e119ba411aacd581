"""The shipped alert rules and the dashboard on a real Prometheus, fed by Airflow's own OpenTelemetry client.

Real: the history, the task's function, Airflow's client and exporter in a process of their own, OTLP over HTTP,
Prometheus. A stand-in: the Collector between the two (tests/builders/otel_bridge.py). No scheduler runs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.builders.needed import program
from tests.builders.nights import ENDED_AT, night
from tests.builders.otel_bridge import Bridge, bridge
from tests.builders.prometheus import Prometheus, prometheus, wait_until
from trainbench.alerting.gauges import CODES, Client, Gauge, client_points, gauges
from trainbench.core.states import FRESH
from trainbench.core.verdicts import Why
from trainbench.history.history import History, open_history

ROOT = Path(__file__).parents[2]
METRICS = ROOT / "docker" / "metrics"
RULES = METRICS / "prometheus-rules.yaml"
DASHBOARD: dict[str, Any] = json.loads((METRICS / "grafana-dashboard.json").read_text())
PANELS = {panel["title"]: panel["targets"][0]["expr"] for panel in DASHBOARD["panels"]}
RED = {("TrainbenchNodeRed", "node-2"), ("TrainbenchNodeRed", "node-3.rack-1")}
ALERTS = RED | {("TrainbenchNodeWarning", "node-4"), ("TrainbenchNodeNotChecked", "node-5")}
# What a task's process does, without the scheduler that starts it.
SEND = """
from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from trainbench.orchestration.metrics_dag import send_gauges

legacy = conf.getboolean("metrics", "legacy_names_on")
stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy)
print(send_gauges.function())
"""


class Fed(NamedTuple):
    history: History
    bridge: Bridge
    num_sent: int


def record_nights(folder: Path) -> History:
    """Tonight node-2 was missing, node-3.rack-1 10 % too slow, node-4 behind; node-5 was last judged 3 days ago."""
    history, today = open_history(_url(folder)), (datetime.now(UTC) - ENDED_AT).days + 1
    well = {"node-1": 10.0, "node-2": 10.0, "node-3.rack-1": 10.0, "node-4": 10.0}
    history.record(night(today - 3, well | {"node-5": 10.0}))
    past = {"node-4": {"past": 10.0, "level": 12.0}}
    whys = {"node-2": Why.MISSING, "node-3.rack-1": Why.SLOW, "node-4": Why.BEHIND}
    history.record(night(today, {"node-1": 10.0, "node-3.rack-1": 9.0, "node-4": 9.6}, whys, expected=past))
    return history


def send(folder: Path, client: Mapping[str, str]) -> int:
    """Send the gauges of `record_nights` by Airflow's client with these settings, and return their number."""
    environment = {
        "AIRFLOW_HOME": str(folder),
        "TRAINBENCH_HISTORY_URL": _url(folder),
        "TRAINBENCH_STORE": str(folder),
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in (".", "plugins", "scripts")),
        **client,
    }
    done = subprocess.run(
        [sys.executable, "-c", SEND], env=os.environ | environment, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def _url(folder: Path) -> str:
    return f"sqlite:///{folder}/history.sqlite"


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed]:
    folder = tmp_path_factory.mktemp("metrics")
    history = record_nights(folder)
    with bridge() as collector:
        otel = {"AIRFLOW__METRICS__OTEL_ON": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        otel |= {"OTEL_EXPORTER_OTLP_TIMEOUT": "300", "OTEL_METRIC_EXPORT_TIMEOUT": "300000"}  # s and ms
        yield Fed(history, collector, send(folder, otel))


@pytest.fixture(scope="module")
def server(fed: Fed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    target = fed.bridge.url.removeprefix("http://")
    with prometheus(tmp_path_factory.mktemp("prometheus"), target, [RULES]) as started:
        wait_until(lambda: started.alerts() >= ALERTS, started.alerts)
        yield started


@pytest.fixture(scope="module", autouse=True)
def promtool() -> str:
    return program("promtool", "prometheus")


def state_points(fed: Fed, *, has_labels: bool) -> tuple[Gauge, ...]:
    now = datetime.now(UTC)
    return client_points(gauges(fed.history.fleet_state(now, FRESH), now), Client(has_labels)).points


def expression(panel: str) -> str:
    """With all nodes and works chosen, as Grafana fills it in."""
    return PANELS[panel].replace("$node", ".*").replace("$work", ".*")


# ---------------------------------------------------------------- what OpenTelemetry carries


def test_opentelemetry_carries_each_gauge_with_its_labels(fed: Fed) -> None:
    sent = {
        (f"airflow.{name}", tuple((labels or {}).items())): value
        for name, value, labels in state_points(fed, has_labels=True)
    }
    arrived = {(name, labels): value for name, series in fed.bridge.gauges.items() for labels, value in series.items()}
    ours = {series: value for series, value in arrived.items() if series[0].startswith("airflow.trainbench.")}
    refreshed = ("airflow.trainbench.refreshed_timestamp_seconds", ())

    assert len(ours) == fed.num_sent
    assert ours.pop(refreshed) == pytest.approx(sent.pop(refreshed), abs=600)
    assert ours == pytest.approx(sent)


# ---------------------------------------------------------------- alert rules


def test_the_rules_are_valid_and_each_scenario_holds(promtool: str) -> None:
    for command in (["check", "rules", str(RULES)], ["test", "rules", "prometheus-rules-test.yaml"]):
        done = subprocess.run([promtool, *command], cwd=Path(__file__).parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_rule_has_a_scenario_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    rules = {rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
    scenarios = yaml.safe_load((Path(__file__).parent / "prometheus-rules-test.yaml").read_text())["tests"]
    cases = [case for scenario in scenarios for case in scenario["alert_rule_test"]]

    assert {case["alertname"] for case in cases if case["exp_alerts"]} == rules
    # Of the first two a well node stands beside the others.
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == rules - {
        "TrainbenchNodeRed",
        "TrainbenchNodeWarning",
    }


def test_prometheus_raises_the_alerts_of_this_night_and_no_others(server: Prometheus) -> None:
    (group,) = server.get("rules")["groups"]

    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    assert server.alerts() == ALERTS


# ---------------------------------------------------------------- dashboard


@pytest.mark.parametrize("panel", PANELS)
def test_each_query_of_the_dashboard_gives_data(server: Prometheus, panel: str) -> None:
    assert server.query(expression(panel)), expression(panel)


def test_the_dashboard_counts_what_the_night_was(server: Prometheus) -> None:
    """Five nodes: two red, one to look at, one well, one stale. Eight runs of 55 s at $0.60 an hour cost $0.0733."""
    expected = {"Red nodes": 2, "Look": 1, "Well": 1, "Runs without a known price, last 30 days": 0}
    assert {panel: server.values(expression(panel)) for panel in expected} == {
        panel: [value] for panel, value in expected.items()
    }
    assert server.values(expression("Spend, last 30 days")) == [pytest.approx(8 * 55 / 3600 * 0.6)]
    assert sorted(server.values(expression("Samples/s"))) == [9.0, 9.6, 10.0, 10.0]


def test_the_age_of_a_verdict_rises_while_no_night_runs(server: Prometheus) -> None:
    """At a later time the same gauges say that more time has passed: nobody has to send them for that."""
    age = expression("Since the newest verdict")
    now = datetime.now(UTC)
    ages = [
        float(server.get("query", query=age, time=f"{at.timestamp()}")["result"][0]["value"][1])
        for at in (now, now + timedelta(minutes=4))
    ]

    assert ages[1] - ages[0] == pytest.approx(240)


def test_the_dashboards_variables_offer_what_there_is(server: Prometheus) -> None:
    for variable in DASHBOARD["templating"]["list"][1:]:
        actual = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        assert actual is not None
        assert server.get(f"label/{actual[2]}/values", **{"match[]": actual[1]})


def test_the_dashboard_names_each_code() -> None:
    named = {panel["title"]: panel["fieldConfig"]["defaults"].get("mappings") for panel in DASHBOARD["panels"]}
    for title in ("Nodes, the worst first", "Condition"):
        ((mapping,), codes) = named[title], {str(code): each.value for each, code in CODES.items()}
        assert {code: shown["text"] for code, shown in mapping["options"].items()} == codes


# ---------------------------------------------------------------- StatsD's mapping, documentation


def test_statsds_mapping_gives_the_names_and_labels_of_opentelemetry(fed: Fed) -> None:
    """By the exporter's own rules: the first that matches counts, and a * is one part between dots."""
    labelled = {
        (f"airflow.{p.name}".replace(".", "_"), _without_gpu(p.labels)) for p in state_points(fed, has_labels=True)
    }

    assert {_mapped(f"airflow.{point.name}") for point in state_points(fed, has_labels=False)} == labelled


def test_the_page_names_each_gauge_and_each_label(fed: Fed) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    sent = state_points(fed, has_labels=True)
    rows = {
        tuple(cell.strip(" `") for cell in line.split("|")[1:-1]) for line in page.splitlines() if line.startswith("|")
    }
    documented = {row[0]: row[1] for row in rows if row[0].startswith("trainbench.")}

    assert documented.keys() == {point.name for point in sent}
    for point in sent:
        assert set(re.findall(r"\w+", documented[point.name])) >= set(point.labels or ())
    assert all(f"`{rule['alert']}`" in page for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"])


def _without_gpu(labels: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple((key, value.replace(".", "__")) for key, value in (labels or {}).items() if key != "gpu")


def _mapped(name: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    for rule in yaml.safe_load((METRICS / "statsd-mapping.yaml").read_text())["mappings"]:
        pattern = re.escape(rule["match"]).replace(r"\*", r"([^.]*)")
        if match := re.fullmatch(pattern, name):
            labels = rule.get("labels", {}).items()
            return _filled(rule["name"], match), tuple((key, _filled(value, match)) for key, value in labels)
    raise AssertionError(f"no rule for {name}")


def _filled(text: str, match: re.Match[str]) -> str:
    return re.sub(r"\$(\d)", lambda place: match[int(place[1])], text)
