"""Reads each node's streak of campaigns without a verdict from the stored verdicts."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from sqlalchemy import Connection, select

from trainbench.core.verdicts import State
from trainbench.history.summary_tables import campaigns, node_verdicts, works
from trainbench.judging.over_time.undecided_streaks import Streak, streak

STREAK_CAMPAIGNS = 30  # a month of nights; a longer streak is reported as one of a month


def read_streaks(connection: Connection, suite: str, campaign_id: str, before: datetime) -> dict[str, Streak]:
    earlier = (
        (campaigns.c.suite == suite) & (campaigns.c.campaign_id != campaign_id) & (campaigns.c.finished_at < before)
    )
    recent = (
        select(campaigns.c.campaign_id)
        .where(earlier & (campaigns.c.num_nodes > 0))
        .order_by(campaigns.c.finished_at.desc(), campaigns.c.campaign_id)
        .limit(STREAK_CAMPAIGNS)
    )
    query = (
        select(works.c.campaign_id, works.c.at, node_verdicts.c.work_id, node_verdicts.c.node, node_verdicts.c.state)
        .join(works, works.c.id == node_verdicts.c.work_id)
        .where(works.c.campaign_id.in_(recent) & ~node_verdicts.c.is_drill)
        .order_by(works.c.at.desc(), works.c.campaign_id)
    )
    rows = connection.execute(query).all()
    num_nodes = Counter(row.work_id for row in rows)
    nights: dict[str, dict[str, tuple[datetime, list[State], list[State]]]] = {}
    for row in rows:
        _, alone, peers = nights.setdefault(row.node, {}).setdefault(row.campaign_id, (row.at, [], []))
        (peers if num_nodes[row.work_id] > 1 else alone).append(State(row.state))
    # groups that ran on one node only count where no other group does
    of_node = {node: ((at, peers or alone) for at, alone, peers in of.values()) for node, of in nights.items()}
    return {node: lasting for node, of in of_node.items() if (lasting := streak(of))}
