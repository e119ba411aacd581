"""A campaign: one execution of the whole flow, with everything that its report needs to say."""

from __future__ import annotations

from pydantic import AwareDatetime

from bench_control.cost import RunCost
from bench_control.verdicts import RED, Finding, GroupVerdict, HistoryVerdict, NodeVerdict
from bench_image.contract import Frozen, RunResult


class Skipped(Frozen):
    """A combination that was asked for and will not run, and why."""

    what: str
    reason: str


class Campaign(Frozen):
    """`results` holds one entry for each planned run, failed ones included, confirm re-runs last."""

    campaign_id: str
    suite: str
    title: str
    started_at: AwareDatetime
    finished_at: AwareDatetime
    params: dict[str, object]
    skipped: tuple[Skipped, ...]
    results: tuple[RunResult, ...]
    groups: tuple[GroupVerdict, ...]
    history: tuple[HistoryVerdict, ...]
    findings: tuple[Finding, ...]
    costs: tuple[RunCost, ...]  # one for each result, in the same order

    @property
    def nodes(self) -> tuple[NodeVerdict, ...]:
        return tuple(node for group in self.groups for node in group.nodes)

    @property
    def red_nodes(self) -> tuple[NodeVerdict, ...]:
        return tuple(node for node in self.nodes if node.state in RED)

    @property
    def is_drill(self) -> bool:
        return any(result.spec.drill for result in self.results)
