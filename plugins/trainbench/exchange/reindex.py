"""Rebuilds the history from the artefacts: records every campaign of a store again, one at a time, oldest first.

It may run beside Airflow. Recording is one transaction that replaces the campaign's rows, so the last writer's result
is the same. Only the newest campaign of its DAG changes notices: an empty history gets those of all nights, and a
history that has later nights keeps its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from bench_image.contract.result import RunResult
from trainbench.params.campaign_kind import CampaignKind
from trainbench.results.artefacts import CAMPAIGN_FILE, Store
from trainbench.results.campaign import IMPORTED, IMPORTED_SUITE, Campaign
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.priced_runs import price_runs
from trainbench.results.store_files import BrokenFile, Progress, StoreError, no_progress

if TYPE_CHECKING:
    from trainbench.history.history import History


def imported_campaign(results: Sequence[RunResult]) -> Campaign:
    """The results of one import, at the prices of this installation."""
    spec, priced = results[0].spec, price_runs(results, None, FaultIsolation())
    return Campaign(
        campaign_id=spec.identity.campaign_id,
        suite=IMPORTED_SUITE,
        title=f"{spec.work.name}, imported",
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


HEAD_BYTES = 65_536
# A verdict's own dates are at the start of the file; no line within a text begins this way.
_FINISHED_AT = re.compile(rb'^ ?"finished_at": ?"([^"]{10,40})"', re.MULTILINE)


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
    imported, own = _parted(store.campaign_ids(), lambda name: name.startswith(IMPORTED))
    published, unpublished = _parted(own, store.has_verdict)
    recorded: list[str] = []
    broken: list[BrokenFile] = []
    # By their end; those without a readable end come last, and are reported then.
    ends = {name: _finished_at(store, name) for name in published}
    dated = {name: end for name, end in ends.items() if end}
    oldest_first = (*sorted(dated, key=lambda name: dated[name]), *(name for name in published if name not in dated))
    for number, campaign_id in enumerate((*oldest_first, *imported), 1):
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
        recorded=tuple(name for name in recorded if not name.startswith(IMPORTED)),
        unpublished=tuple(unpublished),
        imported=tuple(name for name in recorded if name.startswith(IMPORTED)),
        broken=tuple(broken),
    )


def _parted(names: Iterable[str], is_first: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """The names for which `is_first` holds, and the others."""
    parts: tuple[list[str], list[str]] = ([], [])
    for name in names:
        parts[0 if is_first(name) else 1].append(name)
    return parts


def _finished_at(store: Store, campaign_id: str) -> datetime | None:
    """The campaign's end, from the first bytes of verdict.json, which may be large."""
    try:
        head = store.read_summary_head(campaign_id, CAMPAIGN_FILE, HEAD_BYTES)
        match = _FINISHED_AT.search(head)
        at = datetime.fromisoformat(match[1].decode()) if match else store.read_campaign(campaign_id).finished_at
    except (StoreError, ValueError):
        return None
    return at if at.tzinfo else None
