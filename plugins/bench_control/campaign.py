"""A campaign: one execution of the whole flow, with everything that its report needs to say."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator

from bench_control.cost import RunCost
from bench_control.pod_end import NOT_FREE
from bench_control.verdicts import RED, Finding, GroupVerdict, HistoryVerdict, NodeVerdict
from bench_image.contract import Frozen, RunResult, Status, Strategy, upgraded

# A stored campaign may hold results of an older schema version.
StoredResult = Annotated[RunResult, BeforeValidator(upgraded)]


class Skipped(Frozen):
    """A combination that was asked for and will not run, and why. `nodes`: those that it was asked for on."""

    what: str
    reason: str
    strategy: Strategy | None = None
    gpus_per_node: int | None = None
    nodes: tuple[str, ...] = ()
    group_id: str | None = None  # of the runs that there are not; None: no run can be described


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
    judges_nodes: bool = True  # else it compares strategies, and no node is judged by it

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
    def is_drill(self) -> bool:
        return any(result.spec.drill for result in self.results)
