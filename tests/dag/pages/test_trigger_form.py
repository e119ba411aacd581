"""Wrong parameters of a DAG run, sent to Airflow's REST API: refused before a run exists."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dag.pages.site import login


def trigger(client: Any, dag_id: str, conf: dict[str, Any]) -> Any:
    body = {"conf": conf, "logical_date": None}
    return client.post(f"/api/v2/dags/{dag_id}/dagRuns", json=body, headers=login(client, "ada"))


@pytest.mark.parametrize(
    ("dag_id", "conf", "sentence"),
    [
        ("node_consistency", {"strategies": ["dpp"]}, "'dpp' is not one of ['single', 'independent', 'ddp'"),
        ("node_consistency", {"recipe": "qlorra"}, "'qlorra' is not one of ['full', 'lora', 'qlora']"),
        ("node_consistency", {"rounds": 99}, "99 is greater than the maximum of 20"),
        ("node_consistency", {"nodes": ["../x"]}, "'../x' does not match"),
        ("strategy_scaling", {"world_sizes": ["two"]}, "'two' does not match"),
        ("strategy_scaling", {"world_sizes": [0]}, "0 is less than the minimum of 1"),
        ("hardware_survey", {"models": ["gpt9"]}, "'gpt9' is not one of ['tiny', 'mistral-7b'"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(
    client: Any, our_dags: None, dag_id: str, conf: dict[str, Any], sentence: str
) -> None:
    reply = trigger(client, dag_id, conf)

    assert reply.status_code == 400
    assert sentence in reply.json()["detail"]


@pytest.mark.parametrize(
    ("dag_id", "conf"),
    [
        ("strategy_scaling", {"world_sizes": [1, "2"]}),
        ("hardware_survey", {"models": ["mistral-7b-instruct-v0.3"]}),
        # Neither is a matter of one value's schema: the task `plan` refuses them, with close names.
        ("node_consistency", {"model": "gpt9"}),
        ("node_consistency", {"modle": "gpt2"}),
    ],
)
def test_what_a_schema_allows_makes_a_run(client: Any, our_dags: None, dag_id: str, conf: dict[str, Any]) -> None:
    assert trigger(client, dag_id, conf).status_code == 200
