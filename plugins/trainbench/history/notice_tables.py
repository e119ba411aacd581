"""Tables of warnings and of notices sent. The migration builds exactly these."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, String, Table

from trainbench.history.run_tables import UtcDateTime, metadata

# Nodes that are not red but need attention. One row for each node and kind of warning, from the campaign that opened
# it to the one that closes it.
warnings = Table(
    "warnings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("dag_id", String, nullable=False),  # the suite
    Column("node", String, nullable=False),  # "": an alarm of the whole run
    Column("kind", String, nullable=False),  # judging.warning_findings.WarningKind
    Column("finding", String, nullable=False),  # JSON: a Finding; of several nodes, where it is about several
    Column("changes", String, nullable=False),  # JSON: a list of RateChange; over when all rates are back
    Column("campaign_id", String, nullable=False),  # that opened it
    Column("dag_run_id", String),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("closed_at", UtcDateTime),
    Column("closed_by_campaign_id", String),
    Column("ended", String),  # its end as a phrase; null while it is open, and where a worse warning replaced it
    Index("warnings_by_end", "closed_at"),
)
_open = warnings.c.closed_at.is_(None)
Index(
    "warnings_open",
    warnings.c.dag_id,
    warnings.c.node,
    warnings.c.kind,
    unique=True,
    sqlite_where=_open,
    postgresql_where=_open,
)

# One row for each breach or warning, event and channel. It is written before the message is sent: a sender that dies in
# between leaves a row without an end, and the message is not sent a second time.
notices = Table(
    "notices",
    metadata,
    Column("kind", String, primary_key=True),  # breach, warning
    Column("about_id", Integer, primary_key=True, autoincrement=False),
    Column("event", String, primary_key=True),  # opened, closed
    Column("channel", String, primary_key=True),
    Column("node", String, nullable=False),
    Column("claimed_at", UtcDateTime, nullable=False),
    Column("sent_at", UtcDateTime),
    Column("problem", String),  # why the last try failed; null: no try failed, or the outcome is unknown
    Column("num_tries", Integer, nullable=False),
    Index("notices_by_time", "claimed_at"),
)
