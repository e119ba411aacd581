"""Makes the rows of a campaign: its runs, and what the pages read: the campaign, its works, each node's verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from itertools import repeat
from statistics import mode
from typing import Any

from sqlalchemy import Connection, delete, insert, select, text

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.result import RunResult, Status
from trainbench.comparison.scaling import Efficiency, efficiencies
from trainbench.core.grouping import grouped
from trainbench.core.states import NodeState
from trainbench.core.tables import middle_run
from trainbench.core.verdicts import Against, Comparison, GroupVerdict, Level, Metric, NodeVerdict, State, Why
from trainbench.figure_catalogue.run_figures import STORED, run_values
from trainbench.history.tables import SETTING, campaigns, node_verdicts, works
from trainbench.judging.checks import on_our_clock
from trainbench.judging.node_runs import judged_rate
from trainbench.params.campaign_kind import CampaignKind
from trainbench.prices.run_cost import measured_joules
from trainbench.results.campaign import IMPORTED, Campaign
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.readings import gpu_name, is_measured, shared_by
from trainbench.results.setups import setup_of

Rows = Sequence[Mapping[str, Any]]
WORK = ("work_key", *SETTING, "preset", "world_size", "micro_batch_size", "seq_length")
LIMITS = {  # of the comparison with the peers
    Metric.SAMPLES_PER_SECOND: "samples_per_second_limit_pct",
    Metric.MEMORY_GB: "memory_limit_pct",
    Metric.TEMPERATURE_C: "temperature_limit_c",
}

# SQLite and PostgreSQL both take this form; the order of the names prevents a deadlock of two writers.
KNOWN_NODE = text("INSERT INTO nodes (node, suite, gpu_name) VALUES (:node, :suite, :gpu_name) ON CONFLICT DO NOTHING")


@dataclass(frozen=True, kw_only=True)
class WorkSummary:
    """A row of `works` before it has its id, with its runs and verdicts."""

    group_id: str
    values: Mapping[str, Any]
    run_ids: tuple[str, ...] = ()
    verdicts: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by node


def record_summary(
    connection: Connection, campaign: Campaign, rows: Rows, summary: Sequence[WorkSummary]
) -> dict[str, int]:
    """Write the campaign's summary, and replace an earlier one of the same campaign. `rows`: its rows in `runs`;
    `summary`: its works. Returns run id -> id of the run's work.
    """
    old = select(works.c.id).where(works.c.campaign_id == campaign.campaign_id)
    connection.execute(delete(node_verdicts).where(node_verdicts.c.work_id.in_(old)))
    for table in (works, campaigns):
        connection.execute(delete(table).where(table.c.campaign_id == campaign.campaign_id))
    connection.execute(insert(campaigns).values(_campaign_row(campaign, rows)))
    work_ids: dict[str, int] = {}
    for work in summary:
        work_id: int = connection.execute(insert(works).values(work.values).returning(works.c.id)).scalar_one()
        work_ids |= dict.fromkeys(work.run_ids, work_id)
        if work.verdicts:
            connection.execute(insert(node_verdicts), [{"work_id": work_id, **row} for row in work.verdicts.values()])
            connection.execute(KNOWN_NODE, known_nodes(work))
    return work_ids


def known_nodes(work: WorkSummary) -> list[dict[str, str]]:
    """Rows of the table `nodes`: each judged node of the work, with its DAG and GPU."""
    of = {"suite": work.values["suite"], "gpu_name": work.values["gpu_name"] or ""}
    return [{"node": node, **of} for node in sorted(work.verdicts)]


def with_known_gpus(rows: Rows) -> Rows:
    """The rows, where runs that failed early get the GPU of their node's other runs, else the group's only kind."""
    of_node = {row["node"]: row["gpu_name"] for row in rows if row["gpu_name"]}
    of_group = grouped((row["group_id"], row["gpu_name"]) for row in rows if row["gpu_name"])
    filled = []
    for row in rows:
        kinds = set(of_group.get(row["group_id"], ()))
        known = row["gpu_name"] or of_node.get(row["node"]) or (min(kinds) if len(kinds) == 1 else None)
        filled.append({**row, "gpu_name": known})
    return filled


def summarise(campaign: Campaign, rows: Rows) -> tuple[WorkSummary, ...]:
    """The campaign's works in the order of their first runs, then works without a run."""
    keys = _work_keys(campaign, rows)
    made: list[WorkSummary] = []
    of_node: dict[tuple[str, str], WorkSummary] = {}
    of_work = grouped(((row["group_id"], row["gpu_name"], keys[row["run_id"]]), row) for row in rows)
    for (group_id, _, work_key), members in of_work.items():
        made.append(_work(campaign, group_id, work_key, members))
        of_node |= {(group_id, row["node"]): made[-1] for row in members}
    runs_of = grouped(((row["group_id"], row["node"]), row) for row in rows)
    states = {node.node: node for node in campaign.node_states}
    for group in campaign.groups:
        for node in group.nodes:
            subject = (group.group_id, node.node)
            work = of_node.get(subject) or _work_of_missing(campaign, group, made)
            work.verdicts[node.node] = _verdict_row(node, runs_of.get(subject, ()), states[node.node])
    return tuple(made)


def _campaign_row(campaign: Campaign, rows: Rows) -> dict[str, Any]:
    used = {(each.metric, each.against): each.limit for node in campaign.nodes for each in node.comparisons}
    absent = [node for node in campaign.node_states if node.why is Why.ABSENT]
    return {
        "campaign_id": campaign.campaign_id,
        "suite": campaign.suite,
        "dag_run_id": campaign.dag_run_id,
        "title": campaign.title,
        "campaign_kind": campaign.campaign_kind.value,
        "started_at": campaign.started_at,
        "finished_at": campaign.finished_at,
        "is_drill": campaign.is_drill,
        "num_runs": len(rows),
        "num_failed": _num_failed(rows),
        "num_nodes": len({node.node for node in campaign.nodes}),
        "num_red": len({node.node for node in campaign.red_nodes}),
        **{column: used.get((metric, Against.PEERS)) for metric, column in LIMITS.items()},
        "past_limit_pct": used.get((Metric.SAMPLES_PER_SECOND, Against.PAST)),
        # Not those that somebody keeps out on purpose.
        "absent": json.dumps([node.node for node in absent if campaign.finding_of(node).level is not Level.INFO]),
    }


def absent_nodes(text: str) -> list[str]:
    """The nodes in a column `absent`."""
    names: list[str] = json.loads(text)
    return names


def _work_keys(campaign: Campaign, rows: Rows) -> dict[str, str]:
    """Run id -> fingerprint of its work without the strategy. A failed run has its group's usual choice, because its
    own is unknown.
    """
    results = {result.spec.identity.run_id: result for result in campaign.results}
    example = {row["fingerprint"]: row["run_id"] for row in rows}
    known = {each: fingerprint(results[run_id].effective_spec.work) for each, run_id in example.items()}
    chosen = ((row["group_id"], row["fingerprint"]) for row in rows if row["samples_per_second"] is not None)
    usual = {group_id: mode(known[each] for each in of_group) for group_id, of_group in grouped(chosen).items()}
    return {
        row["run_id"]: usual[row["group_id"]]
        if row["samples_per_second"] is None and row["group_id"] in usual
        else known[row["fingerprint"]]
        for row in rows
    }


def _work(campaign: Campaign, group_id: str, work_key: str, rows: Rows) -> WorkSummary:
    valid = [row for row in rows if row["status"] == Status.OK.value and not row["is_drill"]]
    first = {**(valid or rows)[0], "work_key": work_key}
    values = {
        **_head(campaign, group_id),
        **{name: first[name] for name in WORK},
        **{
            each.name: each.combined(row[each.name] for row in (rows if each.stored == "sum" else valid))
            for each in STORED  # runs without figures cost money too
        },
        "num_runs": len(rows),
        "num_valid": len(valid),
        "num_failed": _num_failed(rows),
        "num_unpriced": sum(row["run_usd"] is None for row in rows),
    }
    return WorkSummary(group_id=group_id, values=values, run_ids=tuple(row["run_id"] for row in rows))


def _work_of_missing(campaign: Campaign, group: GroupVerdict, made: list[WorkSummary]) -> WorkSummary:
    """The work of a verdict on a node without any run; a work without any run is added to `made`."""
    alike = [work for work in made if work.group_id == group.group_id]
    same = [work for work in alike if work.values["gpu_name"] == group.gpu_name]
    if same:
        return max(same, key=lambda work: work.values["num_runs"])
    params = {name: campaign.params.get(name) for name in ("model", "recipe", "preset", "strategy")}
    values = {
        **dict.fromkeys(WORK),
        **{name: value for name, value in params.items() if isinstance(value, str)},
        **({name: alike[0].values[name] for name in WORK} if alike else {}),
        **_head(campaign, group.group_id),
        "gpu_name": group.gpu_name,
        **dict.fromkeys(("num_runs", "num_valid", "num_failed", "num_unpriced"), 0),
    }
    made.append(WorkSummary(group_id=group.group_id, values=values))
    return made[-1]


def _head(campaign: Campaign, group_id: str) -> dict[str, Any]:
    at = campaign.finished_at.astimezone(UTC)
    label, day = campaign.labels.get(group_id), at.date().isoformat()
    of = {"campaign_id": campaign.campaign_id, "suite": campaign.suite, "group_id": group_id}
    return of | {"label": label, "at": at, "day": day}


def _verdict_row(verdict: NodeVerdict, rows: Rows, node: NodeState) -> dict[str, Any]:
    past = verdict.comparison(Metric.SAMPLES_PER_SECOND, Against.PAST)
    level = verdict.comparison(Metric.SAMPLES_PER_SECOND, Against.LEVEL)
    memory_pct, temperature_c = (
        verdict.deviation(metric, Against.PAST) if verdict.deviation(metric) is None else verdict.deviation(metric)
        for metric in (Metric.MEMORY_GB, Metric.TEMPERATURE_C)
    )
    return {
        "node": verdict.node,
        "run_id": middle_run((row["run_id"], row["samples_per_second"]) for row in rows),
        "num_runs": verdict.num_runs,
        "state": verdict.state.value,
        "why": verdict.why.value,
        "reason": None if verdict.state is State.WELL else verdict.reason,
        "node_state": node.state.value,
        "node_why": node.why.value,
        "is_red": verdict.is_red,
        "is_drill": verdict.is_drill,
        **decided(verdict.decides),
        "samples_per_second": verdict.samples_per_second,
        "deviation_pct": verdict.deviation(Metric.SAMPLES_PER_SECOND),
        "past_deviation_pct": past.deviation if past else None,
        "past_expected": past.expected if past else None,
        "level_deviation_pct": level.deviation if level else None,
        "level_expected": level.expected if level else None,
        "memory_deviation_pct": memory_pct,
        "temperature_deviation_c": temperature_c,
    }


def decided(shown: Comparison | None) -> dict[str, Any]:
    """The columns of the comparison whose figure every surface shows."""
    if shown is None:
        return dict.fromkeys(("metric", "against", "deviation"))
    return {"metric": shown.metric.value, "against": shown.against.value, "deviation": shown.deviation}


def _num_failed(rows: Rows) -> int:
    return sum(row["status"] != Status.OK.value for row in rows)


Row = dict[str, Any]
NO_FIGURES = frozenset({Why.FAILED, Why.MISSING, Why.BROKEN_GPU, Why.OTHER_NUMBERS, Why.BUSY})


def rows(campaign: Campaign) -> list[Row]:
    """One row for each run, of two results of a run the later one, without runs of which no row can be made."""
    return list({row["run_id"]: row for row in each_row(campaign, FaultIsolation())}.values())


def each_row(campaign: Campaign, parts: FaultIsolation) -> Iterator[Row]:
    """A row for each result, by their end. `parts` collects runs without a row."""
    # A node whose program chose two works has two verdicts; the run gets the worse one.
    by_state = sorted(
        ((group.group_id, node) for group in campaign.groups for node in group.nodes),
        key=lambda pair: -list(State).index(pair[1].state),
    )
    verdicts = {(group_id, node.node): node for group_id, node in by_state}
    scaling = parts.attempt("scaling", campaign.campaign_id, lambda: efficiencies(campaign.results)) or repeat(None)
    scaled = zip(campaign.results, scaling, strict=False)
    for result, efficiency in sorted(scaled, key=lambda each: each[0].finished_at):
        identity = result.spec.identity
        verdict = verdicts.get((identity.group_id, identity.node))
        row = partial(_row, result, campaign, efficiency, verdict)
        made = parts.attempt("recording in the history", identity.run_id, row)
        if made is not None:
            yield made


def _row(result: RunResult, campaign: Campaign, scaling: Efficiency | None, verdict: NodeVerdict | None) -> Row:
    spec, setup = result.spec, setup_of(result.context)
    began, ended = campaign.started_at, campaign.finished_at
    size = result.effective_spec.work.micro_batch_size
    row = {
        "campaign_id": campaign.campaign_id,
        "suite": campaign.suite,
        "run_id": spec.identity.run_id,
        "group_id": spec.identity.group_id,
        "node": spec.identity.node,
        "peers": ",".join(spec.identity.peers),
        "round": spec.identity.round,
        "model": spec.work.model,
        "recipe": "own job" if spec.work.own_job else spec.work.recipe.value,
        "strategy": spec.placement.strategy.value,
        "preset": "own job" if spec.work.own_job else spec.work.preset.value,
        "world_size": spec.placement.world_size,
        "micro_batch_size": size if isinstance(size, int) else None,
        "seq_length": None if spec.work.own_job else spec.work.seq_length,
        "fingerprint": result.effective_spec.fingerprint,
        "started_at": on_our_clock(result.started_at, began, ended),
        "finished_at": on_our_clock(result.finished_at, began, ended),
        "status": result.status.value,
        "state": verdict.state.value if verdict else None,
        "why": verdict.why.value if verdict else None,
        "is_drill": spec.drill is not None,
        # Runs of a noise-floor campaign are not judged, so they are no baseline.
        "is_baseline": campaign.campaign_kind is not CampaignKind.NOISE and _counts(result, verdict),
        "judged_samples_per_second": judged_rate(result),
        **{each.name: value for each, value in run_values(result, scaling).items() if each.stored},
        "energy_j": measured_joules(result),
        "price_source": result.cost.price_source,
        "gpu_name": gpu_name(result),
        "torch": result.context.libraries.get("torch") if result.context else None,
        **setup.model_dump(exclude={"gpu_uuids", "libraries"}),
        "gpu_uuids": ",".join(sorted(setup.gpu_uuids)) or None,
        "libraries": None if setup.libraries is None else json.dumps(dict(setup.libraries), sort_keys=True),
    }
    if not campaign.is_imported:
        return row
    # By none of these fields is it taken for one of ours: no cluster allows such a node name.
    source = f"{IMPORTED}{campaign.campaign_id.rpartition('-')[2]}"
    peers = ",".join(f"{source}/{peer}" for peer in spec.identity.peers)
    return row | {"node": f"{source}/{row['node']}", "peers": peers, "is_baseline": False, "gpu_uuids": None}


def _counts(result: RunResult, verdict: NodeVerdict | None) -> bool:
    """Whether the run enters the past of its node: measured, alone on its GPU, with right numbers, not below that past.
    A node that was always slow has that as its past.
    """
    if not is_measured(result) or shared_by(result) is not None:
        return False
    if verdict is None:
        return True
    return verdict.why not in NO_FIGURES and not any(c.against is Against.PAST for c in verdict.off)
