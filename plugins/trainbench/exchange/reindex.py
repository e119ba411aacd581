"""Rebuilds the history from the artefacts: records every campaign of a store again, one at a time, oldest first.

It may run beside Airflow. Recording is one transaction that replaces the campaign's rows, so the last writer's result
is the same. Only the newest campaign of its DAG changes notices: an empty history gets those of all nights, and a
history that has later nights keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bench_image.contract.result import RunResult
from trainbench.params.campaign_kind import CampaignKind
from trainbench.results.artefacts import Store
from trainbench.results.campaign import IMPORTED, IMPORTED_SUITE, Campaign
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.priced_runs import price_runs
from trainbench.results.store_files import BrokenFile, Progress, StoreError, no_progress

if TYPE_CHECKING:
    from trainbench.history.history import History


LAST = datetime.max.replace(tzinfo=UTC)


def imported_campaign(results: Sequence[RunResult]) -> Campaign:
    """The results of one import, at the prices of this installation."""
    spec = results[0].spec
    return Campaign(
        campaign_id=spec.identity.campaign_id,
        suite=IMPORTED_SUITE,
        title=f"{spec.work.name}, imported",
        started_at=min(result.started_at for result in results),
        finished_at=max(result.finished_at for result in results),
        params={},
        skipped=(),
        results=price_runs(results, None, FaultIsolation()).results,
        groups=(),
        findings=(),
        campaign_kind=CampaignKind.STRATEGIES,
    )


@dataclass(frozen=True)
class Reindexed:
    """Ids of recorded campaigns, of those left out on purpose, and of the `broken` ones."""

    recorded: tuple[str, ...]
    unpublished: tuple[str, ...]  # stopped before their verdict
    imported: tuple[str, ...]  # recorded for the pages: others measured them, so they are no history of nodes here
    broken: tuple[BrokenFile, ...]


def reindex(store: Store, history: History, progress: Progress = no_progress) -> Reindexed:
    """Record every campaign again. Rows whose artefacts are gone stay. Calls `progress` after each campaign. Raises
    StoreError when store or history fail; it can be repeated then.
    """
    names = store.campaign_ids()
    imported = [name for name in names if name.startswith(IMPORTED)]
    published = [name for name in names if name not in imported and store.has_verdict(name)]
    recorded: list[str] = []
    broken: list[BrokenFile] = []
    for number, campaign_id in enumerate((*_oldest_first(store, published), *imported), 1):
        try:
            if campaign_id in imported and not store.has_verdict(campaign_id):
                campaign = imported_campaign(store.read_results(campaign_id).readable(campaign_id))
            else:
                campaign = store.read_campaign(campaign_id)
        except StoreError as error:
            broken.append(BrokenFile(campaign_id, str(error)))
        else:
            history.record(campaign)
            recorded.append(campaign_id)
        progress(number, len(published) + len(imported))
    return Reindexed(
        recorded=tuple(name for name in recorded if name not in imported),
        unpublished=tuple(name for name in names if name not in imported and name not in published),
        imported=tuple(name for name in recorded if name in imported),
        broken=tuple(broken),
    )


def _oldest_first(store: Store, campaign_ids: Iterable[str]) -> list[str]:
    """By their end; those that cannot be read come last, and are reported then."""

    def ended_at(campaign_id: str) -> datetime:
        with suppress(StoreError):
            return store.ended_at(campaign_id) or LAST
        return LAST

    return sorted(campaign_ids, key=ended_at)
