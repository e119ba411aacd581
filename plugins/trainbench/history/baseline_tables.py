"""The table of accepted baselines, as the migration creates it. `reindex` cannot rebuild it: the store has no copy."""

from __future__ import annotations

from sqlalchemy import Column, Integer, String, Table

from trainbench.history.run_tables import UtcDateTime, metadata

baselines = Table(
    "baselines",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("node", String),  # null: all nodes
    Column("fingerprint", String),  # of the work; null: every work
    Column("since", UtcDateTime, nullable=False),  # measurements before it do not count
    Column("who", String, nullable=False),
    Column("why", String, nullable=False),
    Column("accepted_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    Column("revoked_by", String),
    Column("other_names", String, nullable=False, server_default="[]"),  # JSON: list of names of the same GPUs
)
