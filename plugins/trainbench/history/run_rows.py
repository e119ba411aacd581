"""Makes the history's rows of a campaign's runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Any

from bench_image.contract.result import RunResult, Status
from trainbench.comparison.scaling import Efficiency, efficiencies
from trainbench.core.verdicts import Against, NodeVerdict, State, Why
from trainbench.figure_catalogue.run_figures import run_values
from trainbench.judging.checks.wall_clocks import on_our_clock
from trainbench.judging.node_runs import judged_rate
from trainbench.params.campaign_kind import CampaignKind
from trainbench.prices.run_cost import RunCost, measured_joules
from trainbench.results.campaign import IMPORTED, Campaign
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.readings import gpu_name
from trainbench.results.setups import setup_of
from trainbench.results.shared_gpu import shared_by

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
    known = zip(campaign.results, campaign.costs, scaling, strict=False)
    priced = {id(result): (cost, efficiency) for result, cost, efficiency in known}

    def row(result: RunResult) -> Row:
        subject = (result.spec.identity.group_id, result.spec.identity.node)
        made = _row(result, *priced[id(result)], verdicts.get(subject))
        # Runs of a noise-floor campaign are not judged, so they are no baseline.
        made["is_baseline"] = made["is_baseline"] and campaign.campaign_kind is not CampaignKind.NOISE
        made["started_at"] = on_our_clock(result.started_at, campaign.started_at, campaign.finished_at)
        made["finished_at"] = on_our_clock(result.finished_at, campaign.started_at, campaign.finished_at)
        made |= _as_imported(campaign.campaign_id, made) if campaign.is_imported else {}
        return {"campaign_id": campaign.campaign_id, "suite": campaign.suite, **made}

    for result in sorted(campaign.results, key=lambda result: result.finished_at):
        run_id = result.spec.identity.run_id
        made = parts.attempt("recording in the history", run_id, partial(row, result))
        if made is not None:
            yield made


def _as_imported(campaign_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by which no imported run is taken for one of ours: a node name that no cluster allows, no baseline, and
    no GPU by which a node is recognised.
    """
    source = f"{IMPORTED}{campaign_id.rpartition('-')[2]}"
    peers = ",".join(f"{source}/{peer}" for peer in filter(None, row["peers"].split(",")))
    return {"node": f"{source}/{row['node']}", "peers": peers, "is_baseline": False, "gpu_uuids": None}


def _row(result: RunResult, cost: RunCost, scaling: Efficiency | None, verdict: NodeVerdict | None) -> dict[str, Any]:
    spec, context = result.spec, result.context
    return {
        "run_id": spec.identity.run_id,
        "group_id": spec.identity.group_id,
        "node": spec.identity.node,
        "round": spec.identity.round,
        "model": spec.work.model,
        "recipe": spec.work.recipe.value,
        "strategy": spec.placement.strategy.value,
        "preset": spec.work.preset.value,
        "fingerprint": result.effective_spec.fingerprint,
        "gpu_name": gpu_name(result),
        "driver": context.driver if context else None,
        "image": context.image if context else None,
        "torch": context.libraries.get("torch") if context else None,
        "status": result.status.value,
        "state": verdict.state.value if verdict else None,
        "why": verdict.why.value if verdict else None,
        "is_drill": spec.drill is not None,
        "is_baseline": _counts(result, verdict),
        "judged_samples_per_second": judged_rate(result),
        **{each.name: value for each, value in run_values(result, cost, scaling).items() if each.stored},
        **_paid_for(result, cost),
        **_setup_values(result),
    }


def _paid_for(result: RunResult, cost: RunCost) -> dict[str, Any]:
    size = result.effective_spec.work.micro_batch_size
    return {
        "peers": ",".join(result.spec.identity.peers),
        "world_size": result.spec.placement.world_size,
        "micro_batch_size": size if isinstance(size, int) else None,
        "seq_length": result.spec.work.seq_length,
        "price_source": cost.price_source,
        "energy_j": measured_joules(result),
    }


def _setup_values(result: RunResult) -> dict[str, Any]:
    setup = setup_of(result.context)
    return {
        "kernel": setup.kernel,
        "vbios": setup.vbios,
        "power_limit_w": setup.power_limit_w,
        "gpu_uuids": ",".join(sorted(setup.gpu_uuids)) or None,
        "libraries": None if setup.libraries is None else json.dumps(dict(setup.libraries), sort_keys=True),
        "pod_template": setup.pod_template,
    }


def _counts(result: RunResult, verdict: NodeVerdict | None) -> bool:
    """Whether the run enters the past of its node: measured, alone on its GPU, with right numbers, not below that past.
    A node that was always slow has that as its past.
    """
    if result.status is not Status.OK or result.spec.drill is not None or shared_by(result) is not None:
        return False
    if verdict is None:
        return True
    return verdict.why not in NO_FIGURES and not any(c.against is Against.PAST for c in verdict.off)
