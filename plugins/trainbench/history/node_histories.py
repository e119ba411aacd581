"""Reads the records of all nodes at given works from the history."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import lru_cache

from sqlalchemy import Connection, func, select

from bench_image.contract.result import Status
from trainbench.history.run_tables import OURS, runs
from trainbench.judging.over_time.node_history import NodeRecord, join_records
from trainbench.results.setups import Setup

TRAIL_CAMPAIGNS = 30  # a month of nights; an older change is today's normal level

_COLUMNS = (
    runs.c.campaign_id, runs.c.started_at, runs.c.node, runs.c.fingerprint, runs.c.gpu_name,
    runs.c.judged_samples_per_second, runs.c.temperature_mean_c, runs.c.driver, runs.c.image, runs.c.kernel,
    runs.c.vbios, runs.c.power_limit_w, runs.c.libraries, runs.c.gpu_uuids, runs.c.pod_template,
)  # fmt: skip


def read_node_records(
    connection: Connection, fingerprints: Collection[str], campaign_id: str, before: datetime
) -> tuple[NodeRecord, ...]:
    """Records of the last campaigns before this one, for each node, work and campaign, oldest first."""
    return join_records(
        point for work in sorted(fingerprints) for point in _runs(connection, work, campaign_id, before)
    )


def _runs(connection: Connection, work: str, campaign_id: str, before: datetime) -> Iterator[NodeRecord]:
    of_work = OURS & (runs.c.fingerprint == work) & (runs.c.campaign_id != campaign_id) & (runs.c.started_at < before)
    valid = of_work & (runs.c.status == Status.OK.value) & ~runs.c.is_drill & (runs.c.judged_samples_per_second > 0)
    # The newest campaigns with a valid run of this work, then their runs, oldest first.
    began_at = func.min(runs.c.started_at).label("began_at")
    recent = (
        select(runs.c.campaign_id, began_at)
        .where(valid)
        .group_by(runs.c.campaign_id)
        .order_by(began_at.desc())
        .limit(TRAIL_CAMPAIGNS)
        .subquery()
    )
    query = (
        select(*_COLUMNS)
        .join(recent, recent.c.campaign_id == runs.c.campaign_id)
        .where(valid)
        .order_by(recent.c.began_at, runs.c.campaign_id, runs.c.round)
    )
    for row in connection.execute(query):
        values = tuple(row)
        yield NodeRecord(
            campaign_id=values[0],
            at=values[1],
            node=values[2],
            fingerprint=values[3],
            gpu_name=values[4],
            samples_per_second=values[5],
            temperature_c=values[6],
            setup=stored_setup(*values[7:]),
        )


@lru_cache(maxsize=10_000)  # a fleet has few setups, and the history a row for each run
def stored_setup(
    driver: str | None,
    image: str | None,
    kernel: str | None,
    vbios: str | None,
    power_limit_w: float | None,
    libraries: str | None,
    gpu_uuids: str | None,
    pod_template: str | None,
) -> Setup:
    return Setup(
        driver=driver,
        image=image,
        kernel=kernel,
        vbios=vbios,
        power_limit_w=power_limit_w,
        libraries=json.loads(libraries) if libraries else None,
        gpu_uuids=frozenset(gpu_uuids.split(",")) if gpu_uuids else frozenset(),
        pod_template=pod_template,
    )
