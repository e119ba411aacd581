"""A campaign: one execution of the whole flow, with everything that its report needs to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, WrapValidator, model_validator

from bench_image.contract.frozen import Frozen
from bench_image.contract.parse import upgraded
from bench_image.contract.result import RunResult, Status
from trainbench.core.baselines import Baseline
from trainbench.core.verdicts import ALARMS, RED, Finding, GroupVerdict, HistoryVerdict, NodeVerdict
from trainbench.params.campaign_kind import Question
from trainbench.planning.nodes import GpuNode
from trainbench.planning.skipped import Skipped
from trainbench.pods.pod_end import NOT_FREE
from trainbench.prices.run_cost import RunCost

IMPORTED = "imported-"  # how the ids of campaigns begin that others measured


def _stored(value: Any, validate: Callable[[Any], RunResult]) -> RunResult:
    """A stored campaign may hold results of an older schema version; a result that is one already was checked."""
    return value if isinstance(value, RunResult) else validate(upgraded(value))


StoredResult = Annotated[RunResult, WrapValidator(_stored)]


class Campaign(Frozen):
    """`results` holds one entry for each planned run, failed ones included, confirm re-runs last."""

    campaign_id: str
    suite: str
    title: str
    started_at: AwareDatetime
    finished_at: AwareDatetime
    params: dict[str, object]
    skipped: tuple[Skipped, ...]
    results: tuple[StoredResult, ...]
    groups: tuple[GroupVerdict, ...]
    history: tuple[HistoryVerdict, ...]
    findings: tuple[Finding, ...]
    costs: tuple[RunCost, ...]  # one for each result, in the same order
    question: Question = Question.NODES
    labels: Mapping[str, str] = {}  # group id -> the name under which its work was asked for
    dag_run_id: str | None = None  # None: not made by a DAG run
    known: tuple[GpuNode, ...] = ()  # the plan's nodes, as far as they were known before anything ran
    baselines: tuple[Baseline, ...] = ()  # accepted for its nodes: what was measured before them is no past

    @model_validator(mode="before")
    @classmethod
    def _upgraded(cls, data: Any) -> Any:
        """Campaigns stored by version 0.1 only knew whether they judge nodes; else they compared strategies."""
        if not isinstance(data, dict) or "judges_nodes" not in data:
            return data
        rest = {name: value for name, value in data.items() if name != "judges_nodes"}
        return rest | {"question": Question.NODES if data["judges_nodes"] else Question.STRATEGIES}

    @property
    def judges_nodes(self) -> bool:
        return self.question is Question.NODES

    @property
    def nodes(self) -> tuple[NodeVerdict, ...]:
        return tuple(node for group in self.groups for node in group.nodes)

    @property
    def red_nodes(self) -> tuple[NodeVerdict, ...]:
        return tuple(node for node in self.nodes if node.state in RED)

    @property
    def unjudged_failures(self) -> tuple[StoredResult, ...]:
        """Failed runs that no node is judged by. What does not fit the memory is a row of the table, and a free node
        that was not to be had is nobody's fault.
        """
        judged = {group.group_id for group in self.groups}
        return tuple(
            result
            for result in self.results
            if result.spec.group_id not in judged
            and result.error is not None
            and result.status is not Status.OOM
            and result.error.kind not in NOT_FREE
        )

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """What turns the run red beside its nodes: a part of the judgement failed, peers computed other things, or
        no run gave a figure.
        """
        return tuple(finding for finding in self.findings if finding.category in ALARMS)

    @property
    def is_imported(self) -> bool:
        """Others measured it on their nodes: those have no past here, and nobody here paid for it."""
        return self.campaign_id.startswith(IMPORTED)

    @property
    def is_drill(self) -> bool:
        return any(result.spec.drill for result in self.results)
