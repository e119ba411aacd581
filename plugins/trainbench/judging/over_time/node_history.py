"""A node's speed from campaign to campaign at one work, with its temperature and setup."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bench_image.contract.result import RunResult, Status
from trainbench.core.grouping import grouped
from trainbench.figure_catalogue.run_figures import TEMPERATURE_MEAN_C
from trainbench.judging.node_runs import judged_rate
from trainbench.results.readings import gpu_name
from trainbench.results.setups import Setup, setup_of


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One campaign's valid runs of one node and work: medians, and the last run's setup. `at`: by the campaign's clock.

    Runs in breach have records too: baselines leave them out, but the search for changes needs them.
    """

    campaign_id: str
    at: datetime
    node: str
    fingerprint: str
    gpu_name: str | None
    samples_per_second: float
    temperature_c: float | None
    setup: Setup

    @property
    def series_key(self) -> tuple[str, str, str | None]:
        return self.node, self.fingerprint, self.gpu_name


def records_of(results: Iterable[RunResult], at: datetime) -> tuple[NodeRecord, ...]:
    """Records of the valid runs on one node alone, without drills."""
    valid = (
        result
        for result in sorted(results, key=lambda result: (result.spec.identity.round, result.started_at))
        if result.status is Status.OK
        and result.spec.placement.nodes == 1
        and not result.spec.drill
        and judged_rate(result)
    )
    # Of one node and work at a time: the setups of all runs would take as much memory as the runs.
    together = grouped((_key(result), result) for result in valid)
    return tuple(record for runs in together.values() for record in join_records(_record(run, at) for run in runs))


def _key(result: RunResult) -> tuple[str, str, str, str | None]:
    identity = result.spec.identity
    return identity.campaign_id, identity.node, result.effective_spec.fingerprint, gpu_name(result)


def _record(result: RunResult, at: datetime) -> NodeRecord:
    campaign_id, node, fingerprint, gpu = _key(result)
    return NodeRecord(
        campaign_id=campaign_id,
        at=at,
        node=node,
        fingerprint=fingerprint,
        gpu_name=gpu,
        samples_per_second=judged_rate(result) or 0.0,
        temperature_c=TEMPERATURE_MEAN_C.value(result),
        setup=setup_of(result.context),
    )


def join_records(runs: Iterable[NodeRecord]) -> tuple[NodeRecord, ...]:
    """Records of single runs -> one record for each campaign, node and work, in the order of their first runs."""
    together = grouped(((run.campaign_id, *run.series_key), run) for run in runs)
    return tuple(_joined(same) if len(same) > 1 else same[0] for same in together.values())


def _joined(runs: Sequence[NodeRecord]) -> NodeRecord:
    temperatures = [run.temperature_c for run in runs if run.temperature_c is not None]
    gpus = frozenset[str]().union(*(run.setup.gpu_uuids for run in runs))
    return replace(
        runs[-1],
        at=min(run.at for run in runs),
        samples_per_second=statistics.median(run.samples_per_second for run in runs),
        temperature_c=statistics.median(temperatures) if temperatures else None,
        setup=runs[-1].setup.model_copy(update={"gpu_uuids": gpus}),
    )
