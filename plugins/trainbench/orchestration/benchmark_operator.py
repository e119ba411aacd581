"""One benchmark run as a task of anybody's DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowFailException

from bench_image.contract.parse import parse_spec
from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from trainbench.orchestration.dag_factory import with_defaults
from trainbench.orchestration.plan_tasks import make_stored_plan, owner
from trainbench.orchestration.pod_tasks import ManifestOperator, pod_options
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.plan import campaign_id
from trainbench.pods.manifests import manifest
from trainbench.settings.environment import read_settings

SPEC = "spec"  # XCom key
ONE_RUN: Mapping[str, Any] = {"strategies": ["independent"], "rounds": 1}


class BenchmarkOperator(ManifestOperator):
    """One pod on one node, and one result: no verdict, no report, no row in the history.

    The result is stored before the pod is deleted; `read_result` reads it from the task's XCom. A run that fails fails
    the task; a node that is not free skips it.
    """

    template_fields: Sequence[str] = ("node", "parameters")

    def __init__(self, *, node: str | Any, parameters: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """`node`: its name, or another task's output. `parameters`: of the work and the measurement, by the names of
        docs/parameters.md; what they leave out has the default of `node_consistency`, on each GPU by itself. Raises
        ParamsError.
        """
        settings = read_settings()
        given = {**ONE_RUN, **(parameters or {})}
        if "nodes" in given:
            raise ValueError("parameters has 'nodes': a BenchmarkOperator runs on the one node that `node` names")
        super().__init__(**(pod_options(settings) | kwargs))
        self.node, self.parameters = node, dict(with_defaults(given, settings))

    @cached_property
    def pod(self) -> dict[str, Any]:
        """Of the plan that this try made: a task that is resumed goes on with its pod, whatever its cluster says."""
        ti = get_current_context()["ti"]
        made = ti.xcom_pull(task_ids=ti.task_id, map_indexes=ti.map_index, key=SPEC)
        spec = parse_spec(made) if made else self._planned(ti)
        return manifest(spec, read_settings(), owner())

    def _planned(self, ti: Any) -> RunSpec:
        place = f"{ti.run_id}-{ti.task_id}" + (f"-{ti.map_index}" if ti.map_index >= 0 else "")
        asked = {**self.parameters, "nodes": [self.node]}
        plan = make_stored_plan(CampaignKind.NODES, asked, campaign_id(ti.dag_id, place))
        if len(plan.specs) != 1:
            raise AirflowFailException(
                f"the parameters make {len(plan.specs)} runs, and a BenchmarkOperator makes one: give one strategy and "
                "rounds=1"
            )
        ti.xcom_push(key=SPEC, value=plan.specs[0].model_dump_json())
        return plan.specs[0]


def read_result(handed_over: object) -> RunResult:
    """The result of a BenchmarkOperator, from its XCom. Raises ValueError, StoreError and ContractError."""
    from trainbench.results.arrivals import result_of
    from trainbench.results.artefacts import open_store

    result = result_of(open_store(read_settings().store), handed_over)
    if result is None:
        raise ValueError(f"{handed_over!r:.200} names no result: give the output of a BenchmarkOperator that succeeded")
    return result
