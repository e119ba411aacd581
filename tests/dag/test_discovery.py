"""Discovery: named nodes need no leave to list the cluster's; without names there is nothing to run on."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from trainbench.cluster.kubernetes_api import Refused
from trainbench.orchestration import node_discovery
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet, named
from trainbench.settings.environment import read_settings

SETTINGS = read_settings({})


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> Any:
        raise Refused("GET /api/v1/nodes", 403, "Forbidden", "nodes is forbidden")

    monkeypatch.setattr(node_discovery, "discover_fleet", refuse)


@pytest.mark.usefixtures("forbidden")
def test_named_nodes_run_without_leave_to_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert node_discovery.known_fleet(SETTINGS, parse_params({"nodes": ["gpu-a"]})) == Fleet(nodes=named(["gpu-a"]))
    assert "no run is skipped for them: GET /api/v1/nodes: nodes is forbidden" in capsys.readouterr().out


@pytest.mark.usefixtures("forbidden")
def test_without_names_the_refusal_is_told() -> None:
    with pytest.raises(AirflowFailException, match=r"nodes is forbidden.*name nodes in the parameter"):
        node_discovery.known_fleet(SETTINGS, parse_params({}))
