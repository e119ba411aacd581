"""Imported results as a campaign that the pages list. It judges no node."""

from __future__ import annotations

from collections.abc import Sequence

from bench_image.contract.result import RunResult
from trainbench.params.campaign_kind import CampaignKind
from trainbench.results.campaign import IMPORTED_SUITE, Campaign
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.priced_runs import price_runs


def imported_campaign(results: Sequence[RunResult]) -> Campaign:
    """The results of one import, at the prices of this installation."""
    spec, priced = results[0].spec, price_runs(results, None, FaultIsolation())
    return Campaign(
        campaign_id=spec.identity.campaign_id,
        suite=IMPORTED_SUITE,
        title=f"{spec.work.model} {spec.work.recipe}, imported",
        started_at=min(result.started_at for result in results),
        finished_at=max(result.finished_at for result in results),
        params={},
        skipped=(),
        results=priced.results,
        groups=(),
        history=(),
        findings=(),
        costs=priced.costs,
        campaign_kind=CampaignKind.STRATEGIES,
    )
