"""Reads the records of all nodes at given works from the history."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, func, select

from bench_image.contract.result import Status
from trainbench.core.baselines import Baseline, in_force
from trainbench.core.verdicts import Why
from trainbench.history.baselines import read_baselines
from trainbench.history.tables import OURS, runs
from trainbench.judging.past import NodeRecord, join_records
from trainbench.results.setups import Setup

MAX_CAMPAIGNS = 90  # a quarter of a year of nights
# What accepting a level forgives: the node was measured, and its figures were the new level already.
SLOWER = frozenset({Why.SLOW, Why.BEHIND, Why.CHANGED, Why.ONCE, Why.PAIR})
FIGURES = (
    "campaign_id", "started_at", "node", "fingerprint", "gpu_name", "judged_samples_per_second", "peak_memory_gb",
    "temperature_mean_c", "is_baseline", "why",
)  # fmt: skip
SETUP = ("driver", "image", "kernel", "vbios", "power_limit_w", "libraries", "gpu_uuids", "pod_template")


def read_node_records(
    connection: Connection, fingerprints: Collection[str], campaign_id: str, before: datetime
) -> tuple[NodeRecord, ...]:
    """Records of the last campaigns before this one, for each node, work and campaign, oldest first.

    Of nodes with an accepted level, what lies before it is left out, and runs that were slower than their past until
    its acceptance count.
    """
    accepted = read_baselines(connection)
    return join_records(
        point for work in sorted(fingerprints) for point in _runs(connection, work, campaign_id, before, accepted)
    )


def _runs(
    connection: Connection, work: str, campaign_id: str, before: datetime, accepted: Sequence[Baseline]
) -> Iterator[NodeRecord]:
    of_work = OURS & (runs.c.fingerprint == work) & (runs.c.campaign_id != campaign_id) & (runs.c.started_at < before)
    valid = of_work & (runs.c.status == Status.OK.value) & ~runs.c.is_drill & (runs.c.judged_samples_per_second > 0)
    # The newest campaigns with a valid run of this work, then their runs, oldest first.
    began_at = func.min(runs.c.started_at).label("began_at")
    recent = (
        select(runs.c.campaign_id, began_at)
        .where(valid)
        .group_by(runs.c.campaign_id)
        .order_by(began_at.desc())
        .limit(MAX_CAMPAIGNS)
        .subquery()
    )
    query = (
        select(*(runs.c[name] for name in (*FIGURES, *SETUP)))
        .join(recent, recent.c.campaign_id == runs.c.campaign_id)
        .where(valid)
        .order_by(recent.c.began_at, runs.c.campaign_id, runs.c.round)
    )
    levels: dict[str, Baseline | None] = {}
    for row in connection.execute(query):
        campaign, at, node, fingerprint, gpu_name, rate, memory_gb, temperature_c, counts, why, *setup = tuple(row)
        if accepted:
            if node not in levels:
                levels[node] = in_force(accepted, node, work, before)
            level = levels[node]
            if level is not None and at < level.since:
                continue
            counts = counts or (level is not None and at <= level.accepted_at and why in SLOWER)
        yield NodeRecord(
            campaign_id=campaign,
            at=at,
            node=node,
            fingerprint=fingerprint,
            gpu_name=gpu_name,
            samples_per_second=rate,
            # Without a GPU it is the resident memory of the process, which depends on what else the host does.
            memory_gb=(memory_gb or None) if gpu_name else None,  # 0 is no measurement
            temperature_c=temperature_c or None,  # a sensor that reads 0 reads nothing
            setup=stored_setup(*setup),
            counts=counts,
        )


@lru_cache(maxsize=10_000)  # a fleet has few setups, and the history a row for each run
def stored_setup(*values: Any) -> Setup:
    """Of the values of the columns SETUP."""
    fields = dict(zip(SETUP, values, strict=True))
    libraries, gpu_uuids = fields["libraries"], fields["gpu_uuids"]
    known = {"libraries": json.loads(libraries) if libraries else None}
    return Setup(**fields | known | {"gpu_uuids": frozenset(gpu_uuids.split(",") if gpu_uuids else ())})
