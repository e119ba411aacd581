"""Discovery: named nodes need no leave to list the cluster's; without names there is nothing to run on."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from bench_control.asking.params import parse_params
from bench_control.flows import discovery
from bench_control.installation.settings import read_settings
from bench_control.planning.nodes import Fleet
from bench_control.site.cluster import Refused

SETTINGS = read_settings({})


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> Any:
        raise Refused("GET /api/v1/nodes", 403, "Forbidden", "nodes is forbidden")

    monkeypatch.setattr(discovery, "discover_fleet", refuse)


@pytest.mark.usefixtures("forbidden")
def test_named_nodes_run_without_leave_to_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert discovery.known_fleet(SETTINGS, parse_params({"nodes": ["gpu-a"]})) == Fleet()
    assert "no run is skipped for them: GET /api/v1/nodes: nodes is forbidden" in capsys.readouterr().out


@pytest.mark.usefixtures("forbidden")
def test_without_names_the_refusal_is_told() -> None:
    with pytest.raises(AirflowFailException, match=r"nodes is forbidden.*name nodes in the parameter"):
        discovery.known_fleet(SETTINGS, parse_params({}))
