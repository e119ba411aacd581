"""The names of a node over time. Its GPUs' UUIDs identify it, since it may be renamed."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, func, or_, select

from trainbench.history.tables import runs

_KNOWN = runs.c.gpu_uuids.is_not(None) & ~runs.c.is_drill


class _Name(NamedTuple):
    """A name with its first and last measurement."""

    name: str
    first: datetime
    last: datetime


def other_names(connection: Connection, node: str) -> tuple[str, ...]:
    """The earlier and later names of `node`'s present GPUs, the oldest first. As in `judging.renames`, two names in use
    at the same time are two nodes between which a GPU was moved.
    """
    names = [_name(connection, node)]
    waiting = [node]
    while waiting:
        for name in _names_with(connection, _latest_gpus(connection, waiting.pop())):
            dated = _name(connection, name)
            if all(dated.last < known.first or known.last < dated.first for known in names):
                names.append(dated)
                waiting.append(name)
    return tuple(known.name for known in sorted(names, key=lambda known: known.first) if known.name != node)


def _name(connection: Connection, name: str) -> _Name:
    span = select(func.min(runs.c.started_at), func.max(runs.c.started_at)).where(runs.c.node == name)
    first, last = connection.execute(span).one()
    return _Name(name, first, last)


def _latest_gpus(connection: Connection, node: str) -> frozenset[str]:
    """The UUIDs of all GPUs in its latest campaign."""
    of_node = _KNOWN & (runs.c.node == node)
    last = select(runs.c.campaign_id).where(of_node).order_by(runs.c.started_at.desc()).limit(1).scalar_subquery()
    uuids = connection.execute(select(runs.c.gpu_uuids).where(of_node & (runs.c.campaign_id == last))).scalars()
    return frozenset(uuid for text in uuids for uuid in text.split(","))


def _names_with(connection: Connection, gpus: frozenset[str]) -> list[str]:
    """Names, in alphabetical order, under which one of these GPUs ever ran."""
    if not gpus:
        return []
    one_of = or_(*(runs.c.gpu_uuids.contains(uuid, autoescape=True) for uuid in sorted(gpus)))
    rows = connection.execute(select(runs.c.node, runs.c.gpu_uuids).where(_KNOWN & one_of).distinct())
    return sorted({node for node, uuids in rows if gpus & set(uuids.split(","))})
