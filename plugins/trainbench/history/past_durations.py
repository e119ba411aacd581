"""Reads how long runs of given works took here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, select

from bench_image.contract.result import Status
from trainbench.history.tables import OURS, runs

MAX_RUNS = 200  # of each work, the latest ones


class PastRun(NamedTuple):
    gpu_name: str | None  # None: on a CPU
    seconds: float  # from process start to result


def read_past_runs(connection: Connection, group_ids: Collection[str]) -> Mapping[str, tuple[PastRun, ...]]:
    """Group id -> its latest runs that ended well; a group id ends in the fingerprint of work and measurement. A node
    whose clock is wrong has runs of no duration, because times are moved into the campaign's; they do not count.
    """
    past = {}
    for group_id in sorted(group_ids):
        ended_well = (runs.c.status == Status.OK.value) & (runs.c.finished_at > runs.c.started_at)
        valid = OURS & (runs.c.group_id == group_id) & ended_well & ~runs.c.is_drill
        columns = (runs.c.gpu_name, runs.c.started_at, runs.c.finished_at)
        latest = connection.execute(select(*columns).where(valid).order_by(runs.c.started_at.desc()).limit(MAX_RUNS))
        past[group_id] = tuple(PastRun(gpu, (ended - began).total_seconds()) for gpu, began, ended in latest)
    return past
