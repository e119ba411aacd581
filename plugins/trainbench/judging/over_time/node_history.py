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
    return join_records(
        NodeRecord(
            campaign_id=result.spec.identity.campaign_id,
            at=at,
            node=result.spec.identity.node,
            fingerprint=result.effective_spec.fingerprint,
            gpu_name=gpu_name(result),
            samples_per_second=rate,
            temperature_c=TEMPERATURE_MEAN_C.value(result),
            setup=setup_of(result.context),
        )
        for result in sorted(results, key=lambda result: (result.spec.identity.round, result.started_at))
        if result.status is Status.OK
        and result.spec.placement.nodes == 1
        and not result.spec.drill
        and (rate := judged_rate(result))
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
