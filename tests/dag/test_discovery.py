"""Discovery: named nodes need no leave to list the cluster's; without names there is nothing to run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowFailException

from trainbench.cluster import kubernetes_api
from trainbench.cluster.kubernetes_api import Cluster, Refused
from trainbench.orchestration import plan_tasks
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet, named_nodes
from trainbench.planning.plan import PlanError, chosen_nodes
from trainbench.settings.environment import read_settings

SETTINGS = read_settings({})


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise Refused("GET /api/v1/nodes", 403, "Forbidden", "nodes is forbidden")

    monkeypatch.setattr(plan_tasks, "discover_fleet", refuse)


@pytest.mark.usefixtures("forbidden")
def test_named_nodes_run_without_leave_to_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_tasks.known_fleet(SETTINGS, parse_params({"nodes": ["gpu-a"]})) == Fleet(nodes=named_nodes(["gpu-a"]))
    assert "no run is skipped for them: GET /api/v1/nodes: nodes is forbidden" in capsys.readouterr().out


@pytest.mark.usefixtures("forbidden")
def test_without_names_the_refusal_is_reported() -> None:
    with pytest.raises(AirflowFailException, match=r"nodes is forbidden.*name nodes in the parameter"):
        plan_tasks.known_fleet(SETTINGS, parse_params({}))


def test_nodes_by_label_are_those_that_the_installation_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both selectors count; a node that is named needs no label."""
    asked: list[Any] = []
    api = Cluster(api=None, namespace="bench", node_selector="pool=gpu")
    monkeypatch.setattr(kubernetes_api, "open_cluster", lambda _: api)
    monkeypatch.setattr(Cluster, "nodes", lambda self: asked.append(self.node_selector) or ())
    settings = read_settings({"TRAINBENCH_NODE_SELECTOR": "pool=gpu"})
    labels = {"node_labels": "gpu in (h100, h200)"}
    fleet = plan_tasks.known_fleet(settings, parse_params(labels))
    plan_tasks.known_fleet(settings, parse_params(labels | {"nodes": ["gpu-a"]}))

    assert asked == ["pool=gpu,gpu in (h100, h200)", "pool=gpu"]
    with pytest.raises(PlanError, match=r"none with GPUs has the labels of node_labels, 'gpu in \(h100, h200\)'"):
        chosen_nodes(parse_params(labels), fleet)


@pytest.mark.usefixtures("forbidden")
def test_unknown_nodes_have_the_first_resource_and_a_pattern_names_none() -> None:
    """Which slice a node has only its own list says."""
    form = parse_params({"nodes": ["gpu-a"]})
    amd = read_settings({"TRAINBENCH_GPU_RESOURCES": "amd.com/gpu,nvidia.com/gpu"})
    assert [node.gpu_resource for node in plan_tasks.known_fleet(amd, form).nodes] == ["amd.com/gpu"]

    slices = read_settings({"TRAINBENCH_GPU_RESOURCES": "nvidia.com/mig-*"})
    with pytest.raises(
        AirflowFailException, match=r"nodes is forbidden .*; which nvidia.com/mig-\* the nodes have is not"
    ):
        plan_tasks.known_fleet(slices, form)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            "measured_stepz",
            "measured_stepz (did you mean 'measured_steps' or 'max_measured_steps'?) is not a parameter of",
        ),
        (
            "drill_node",
            "drill_node is not a parameter of strategy_scaling: choose from nodes, node_labels, strategies, ",
        ),
    ],
)
def test_a_name_that_is_no_parameter_of_the_dag_stops_the_plan(
    wrong: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow takes any by REST and command line; a drill of the scaling study was silently none."""
    ti = Mock()
    context = {"params": {"nodes": ["gpu-a"], wrong: "gpu-a"}, "ti": ti}
    monkeypatch.setattr(plan_tasks, "get_current_context", lambda: context)
    with pytest.raises(AirflowFailException) as refusal:
        plan_tasks.make_stored_plan(CampaignKind.STRATEGIES, context["params"])
    assert str(refusal.value).startswith(words)
    ti.xcom_push.assert_called_once_with(key=plan_tasks.REASON, value=str(refusal.value))


def test_a_template_that_cannot_be_used_stops_the_plan_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`ready` says so first; the file may have changed since."""
    template, ti = tmp_path / "template.yaml", Mock()
    template.write_text("apiVersion: v1\nkind: Pod\nspec: {restartPolicy: Always}")
    monkeypatch.setenv("TRAINBENCH_POD_TEMPLATE", str(template))
    context = {"params": {"nodes": ["gpu-a"]}, "dag": Mock(dag_id="node_consistency"), "run_id": "manual", "ti": ti}
    monkeypatch.setattr(plan_tasks, "get_current_context", lambda: context)
    monkeypatch.setattr(plan_tasks, "known_fleet", lambda *_: Fleet(nodes=named_nodes(["gpu-a"])))
    monkeypatch.setattr(plan_tasks, "max_map_length", lambda: 1024)
    with pytest.raises(AirflowFailException, match=r"spec.restartPolicy: a failed benchmark is repeated by its task"):
        plan_tasks.make_stored_plan(CampaignKind.NODES, context["params"])
    assert ti.xcom_push.call_args.kwargs["key"] == plan_tasks.REASON
