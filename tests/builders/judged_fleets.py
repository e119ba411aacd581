"""Results judged as nodes, without a history: give the measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench_image.contract.result import RunResult
from tests.builders import STARTED_AT
from trainbench.core.verdicts import GroupVerdict, NodeVerdict
from trainbench.judging.judge import Judgement, Known, judge
from trainbench.params.campaign_params import parse_params
from trainbench.planning.plan import Plan


def judge_fleet(
    results: Sequence[RunResult], reruns: Sequence[RunResult] = (), expected: Sequence[str] = (), **known: Any
) -> Judgement:
    """`expected`: nodes that were planned beside those with a result; `known`: fields of `Known`, of the parameters
    (`params`), or of the plan (`has_reruns`).
    """
    names = tuple(dict.fromkeys([*(run.spec.identity.node for run in results), *expected]))
    rounds = max((run.spec.identity.round for run in results), default=1)
    group_ids = {run.spec.identity.group_id for run in results}
    params = parse_params({"rounds": rounds, **known.pop("params", {})})
    specs = [run.spec for run in results]
    specs += [
        specs[0].changed(identity={"node": name, "group_id": group_id}) for name in expected for group_id in group_ids
    ]
    more = {"has_reruns": known.pop("has_reruns", True)}
    plan = Plan(campaign_id="campaign-1", params=params, nodes=names, specs=tuple(specs), skipped=(), **more)
    return judge(plan, results, reruns, Known(**{"at": STARTED_AT} | known))


def by_name(group: GroupVerdict) -> dict[str, NodeVerdict]:
    return {node.node: node for node in group.nodes}
