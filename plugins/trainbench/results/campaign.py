"""A campaign: one execution of the whole flow, with all data of its report. Those that 0.1.0 stored have nine
states, and figures beside one reference for each metric: `as_of_today` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, WrapValidator, computed_field, model_validator

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import RunResult, Status
from trainbench.core.baselines import Baseline
from trainbench.core.grouping import grouped
from trainbench.core.states import TRAITS, NodeState, plain_finding, state_of
from trainbench.core.verdicts import (
    ALARMS,
    IMPOSSIBLE_WORK,
    NODE_OF_GANGS,
    Against,
    Finding,
    GroupVerdict,
    Level,
    Metric,
    NodeVerdict,
    State,
    Why,
)
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import GpuNode
from trainbench.planning.plan import Skipped
from trainbench.pods.gangs import node_at_fault
from trainbench.pods.pod_end import NOT_FREE
from trainbench.prices import run_cost
from trainbench.results.readings import impossible_works

WHY = {
    "ok": Why.WELL,
    "notice": Why.ONCE,
    "breach": Why.SLOW,
    "insufficient": Why.NOISY,
    "no_baseline": Why.NOTHING_TO_COMPARE,
    "not_judged": Why.OTHER_CHOICE,
    "failed": Why.FAILED,
    "missing": Why.MISSING,
    "busy": Why.BUSY,
}
OF_METRIC = {Metric.TEMPERATURE_C: Why.HOT, Metric.MEMORY_GB: Why.HEAVY}


def as_of_today(campaign: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stored campaign, those of 0.1.0 as this version has them."""
    fields = {name: value for name, value in campaign.items() if name != "costs"}  # which follow from the results
    if "history" not in fields:
        return fields
    fields.pop("history")
    fields["groups"] = [
        {name: value for name, value in group.items() if name != "reference"} | {"nodes": [*map(_node, group["nodes"])]}
        for group in fields["groups"]
    ]
    fields["findings"] = [finding_of_today(finding) for finding in fields["findings"]]
    return fields


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    made = _verdict(node)
    gpus = [{**_verdict(gpu), "index": gpu["index"], "uuid": gpu["uuid"]} for gpu in node.get("gpus", ())]
    return {**made, "node": node["node"], "gpu_name": node["gpu_name"], "gpus": gpus}


def _verdict(node: Mapping[str, Any]) -> dict[str, Any]:
    metrics = node["metrics"]
    off = {Metric(metric["metric"]) for metric in metrics if metric["state"] == "breach"}
    why = WHY[node["state"]]
    if why is Why.SLOW and off and Metric.SAMPLES_PER_SECOND not in off:
        why = next(OF_METRIC[metric] for metric in OF_METRIC if metric in off)
    if why is Why.WELL and node.get("is_watched"):
        why = Why.BEHIND
    is_drill = node.get("is_drill", False)
    state = State.RED if node["state"] == "breach" else TRAITS[why].state
    return {
        "state": State.DRILL if is_drill and why is not Why.BUSY else state,
        "why": why if why is Why.SLOW or not is_drill else Why.DRILL,
        "reason": node["reason"],
        "num_runs": node["num_runs"],
        "comparisons": [_comparison(metric) for metric in metrics if metric["deviation"] is not None],
        **{metric["metric"]: metric["value"] for metric in metrics},
        "decided_by": next(((metric, Against.PEERS) for metric in Metric if metric in off), None),
        "is_drill": is_drill,
    }


def _comparison(metric: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "metric": metric["metric"],
        "against": Against.PEERS,
        "value": metric["value"],
        "expected": metric["reference"],
        "source": "the other nodes",
        "deviation": metric["deviation"],
        "limit": metric["limit"],
        "chance": metric["noise"],
        "rounds": [metric["deviation"]],
        "is_off": metric["state"] == "breach",
    }


def finding_of_today(finding: Mapping[str, Any]) -> dict[str, Any]:
    evidence = [_comparison(metric) for metric in finding.get("evidence", ()) if metric["deviation"] is not None]
    return {**finding, "evidence": evidence}


# `suite` is the id of the DAG that made a campaign. These name campaigns without a DAG.
COMMAND_LINE = "command_line"  # by `trainbench run`
RESULT_FILES = "results"  # from result files of which no campaign is stored
IMPORTED_SUITE = "imported"  # of published results, in the history
WITHOUT_DAG = frozenset({COMMAND_LINE, RESULT_FILES, IMPORTED_SUITE})
IMPORTED = "imported-"  # prefix of the ids of campaigns that others measured


def _checked_once(value: object, validate: Callable[[object], RunResult]) -> RunResult:
    """Accept a RunResult without validating it again: it was checked when it was read."""
    return value if isinstance(value, RunResult) else validate(value)


CheckedResult = Annotated[RunResult, WrapValidator(_checked_once)]


class Campaign(Frozen):
    """`results` holds one entry for each planned run, failed ones included, confirm re-runs last."""

    campaign_id: str
    suite: str  # the DAG's id, or one of WITHOUT_DAG
    title: str
    started_at: AwareDatetime
    finished_at: AwareDatetime
    params: dict[str, object]
    skipped: tuple[Skipped, ...]
    results: tuple[CheckedResult, ...]
    groups: tuple[GroupVerdict, ...]
    findings: tuple[Finding, ...]
    campaign_kind: CampaignKind = CampaignKind.NODES
    labels: Mapping[str, str] = {}  # group id -> its work's name in the form
    dag_run_id: str | None = None  # None: not made by a DAG run
    known: tuple[GpuNode, ...] = ()  # the facts about the plan's nodes before the first run
    marks_are_known: bool = False  # the findings name every node that other work is kept away from, and no other
    logs: Mapping[str, str] = {}  # id of a failed run -> file name of its kept log, the one of the rank that failed
    baselines: tuple[Baseline, ...] = ()  # accepted for its nodes: measurements before them do not count

    @model_validator(mode="before")
    @classmethod
    def _of_older_versions(cls, fields: Any) -> Any:
        return as_of_today(fields) if isinstance(fields, dict) else fields

    @computed_field
    def costs(self) -> tuple[Mapping[str, object], ...]:
        """Of each result, for programs."""
        return tuple(map(run_cost.cost_of, self.results))

    @property
    def brief(self) -> dict[str, Any]:
        """Without the results themselves: thousands of step times would bury the verdict."""
        return {name: value for name, value in self if name != "results"} | {"costs": self.costs}

    @property
    def judges_nodes(self) -> bool:
        return self.campaign_kind is CampaignKind.NODES

    @property
    def is_link_search(self) -> bool:
        """Whether its gangs of several sizes look for a bad node or link, and compare no strategies."""
        return self.campaign_kind is CampaignKind.INTERCONNECT

    @property
    def nodes(self) -> tuple[NodeVerdict, ...]:
        return tuple(node for group in self.groups for node in group.nodes)

    @property
    def red_nodes(self) -> tuple[NodeVerdict, ...]:
        return tuple(node for node in self.nodes if node.state is State.RED)

    @property
    def lone_groups(self) -> tuple[GroupVerdict, ...]:
        """The groups that ran on one node only, where there are several: other strategies, sizes or GPUs."""
        alone = (Why.NOTHING_TO_COMPARE, Why.PAIR)
        lone = tuple(g for g in self.groups if len(g.nodes) == 1 and g.nodes[0].why in alone)
        return lone if len(self.groups) > 1 else ()

    @property
    def node_states(self) -> tuple[NodeState, ...]:
        """One state for each node that was judged, or was absent. A group that ran on one node
        only counts for nodes without another group.
        """
        lone = {id(group) for group in self.lone_groups}
        of_node = grouped((node.node, node) for group in self.groups if id(group) not in lone for node in group.nodes)
        alone = grouped((node.node, node) for group in self.lone_groups for node in group.nodes)
        states = {name: state_of(name, of_node.get(name) or alone[name]) for name in (*of_node, *alone)}
        for finding in self.findings:
            if finding.why is Why.ABSENT:
                for name in finding.nodes:
                    states.setdefault(name, NodeState(name, State.LOOK, Why.ABSENT, finding.measured))
        return tuple(states.values())

    def finding_of(self, node: NodeState, group_id: str | None = None) -> Finding:
        """The finding that explains its state, that at this work first; else one from the state alone."""
        mine = [each for each in self.findings if each.why is node.why and node.node in each.nodes]
        return min(
            mine,
            key=lambda each: (each.group_id != group_id, len(each.nodes)),
            default=plain_finding(node, group_id),
        )

    @property
    def unjudged_failures(self) -> tuple[RunResult, ...]:
        """Failed runs that judge no node, without runs that did not fit into memory, which are rows of the table, those
        without a free node, and those of which an alarm tells: of an impossible work, or ended by one node of a gang.
        """
        if self.is_link_search:
            return ()  # a gang that failed is evidence: the search says whose fault it is
        judged = {group.group_id for group in self.groups}
        told = grouped((alarm.category, alarm.nodes) for alarm in self.alarms)  # older versions told of none
        if IMPOSSIBLE_WORK in told:
            judged |= impossible_works(self.results).keys()
        return tuple(
            result
            for result in self.results
            if result.spec.identity.group_id not in judged
            and result.error is not None
            and result.status is not Status.OOM
            and result.error.kind not in NOT_FREE
            and (node_at_fault(result),) not in told.get(NODE_OF_GANGS, ())
        )

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """Findings that turn the run red, besides red nodes: a part of the judgement failed, runs computed other work,
        no run gave a figure, a link is bad, or a drill was not detected.
        """
        known = (finding for finding in self.findings if finding.category in ALARMS)
        return tuple(finding for finding in known if finding.level is Level.ERROR)

    @property
    def is_imported(self) -> bool:
        """Whether others measured it on nodes without history here and at no cost here."""
        return self.campaign_id.startswith(IMPORTED)

    @property
    def is_drill(self) -> bool:
        return any(result.spec.drill for result in self.results)
