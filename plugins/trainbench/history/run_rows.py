"""Makes the history's rows of a campaign's runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any

from bench_image.contract.result import RunResult
from trainbench.comparison.scaling import Efficiency, efficiencies
from trainbench.core.verdicts import Against, NodeVerdict, State, Why
from trainbench.figure_catalogue.run_figures import run_values
from trainbench.judging.checks.wall_clocks import on_our_clock
from trainbench.judging.node_runs import judged_rate
from trainbench.params.campaign_kind import CampaignKind
from trainbench.prices.run_cost import RunCost, measured_joules
from trainbench.results.campaign import IMPORTED, Campaign
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.readings import gpu_name, is_measured
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
    priced = zip(campaign.results, campaign.costs, scaling, strict=False)
    for result, cost, efficiency in sorted(priced, key=lambda each: each[0].finished_at):
        identity = result.spec.identity
        verdict = verdicts.get((identity.group_id, identity.node))
        row = partial(_row, result, campaign, cost, efficiency, verdict)
        made = parts.attempt("recording in the history", identity.run_id, row)
        if made is not None:
            yield made


def _row(
    result: RunResult, campaign: Campaign, cost: RunCost, scaling: Efficiency | None, verdict: NodeVerdict | None
) -> Row:
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
        **{each.name: value for each, value in run_values(result, cost, scaling).items() if each.stored},
        "energy_j": measured_joules(result),
        "price_source": cost.price_source,
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
