"""Tables of notices, their acknowledgements and messages, and of marks. The migrations build exactly these."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Index, Integer, String, Table

from trainbench.history.run_tables import UtcDateTime, metadata

# One row for each notice, from the campaign that opened it to the one that closed it: at most one open one for each
# node of a DAG, and for each kind of alarm.
notices = Table(
    "notices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("node", String, nullable=False),  # "": an alarm of the whole run
    Column("category", String, nullable=False),  # of an alarm; "": of a node
    Column("dag_id", String, nullable=False),  # the suite of the campaign that opened it, as in `runs`
    Column("state", String, nullable=False),
    Column("why", String),  # null: an alarm
    Column("reason", String, nullable=False),
    Column("metric", String),  # this and the next two: the deviation that opened it; null: none did
    Column("against", String),
    Column("deviation", Float),
    Column("finding", String, nullable=False),  # JSON: a Finding; of several nodes, where it is about several
    Column("group_id", String),
    Column("gpu_name", String),
    Column("model", String),
    Column("recipe", String),
    Column("strategy", String),
    Column("campaign_id", String, nullable=False),  # that opened it
    Column("dag_run_id", String),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("worsened_at", UtcDateTime),  # when it turned red; null: it began red, or never was
    Column("closed_at", UtcDateTime),
    Column("closed_by_campaign_id", String),
    Column("ended", String),  # its end as a phrase; null while it is open
    Column("is_drill", Boolean, nullable=False),
    Index("notices_by_node", "node", "opened_at"),
    Index("notices_by_end", "closed_at"),
)
_open = notices.c.closed_at.is_(None)
Index(
    "notices_open",
    notices.c.dag_id,
    notices.c.node,
    notices.c.category,
    unique=True,
    sqlite_where=_open,
    postgresql_where=_open,
)

# `reindex` cannot rebuild these, since no file has them. A new database may repeat an id, so the node stands beside it.
# Who knew that a node asks for a look did not know that it turned red: each state is acknowledged by itself.
acknowledgements = Table(
    "acknowledgements",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("notice_id", Integer, nullable=False),
    Column("node", String, nullable=False),
    Column("state", String, nullable=False),  # the notice's
    Column("who", String, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("reason", String, nullable=False),
    Index("acknowledgements_by_notice", "notice_id", "node", "state", unique=True),
)

# One row for each notice, event and channel. It is written before the message is sent: a sender that dies in between
# leaves a row without an end, and the message is not sent a second time.
messages = Table(
    "messages",
    metadata,
    Column("notice_id", Integer, primary_key=True, autoincrement=False),
    Column("event", String, primary_key=True),  # opened, worsened, closed
    Column("channel", String, primary_key=True),
    Column("node", String, nullable=False),
    Column("claimed_at", UtcDateTime, nullable=False),
    Column("sent_at", UtcDateTime),
    Column("problem", String),  # why the last try failed; null: no try failed, or the outcome is unknown
    Column("num_tries", Integer, nullable=False),
    Index("messages_by_time", "claimed_at"),
)

# Nodes that this installation keeps other work away from, as far as its runs and commands know.
marks = Table(
    "marks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("node", String, nullable=False),
    Column("dag_id", String, nullable=False),
    Column("dag_run_id", String),
    Column("finding", String, nullable=False),  # JSON
    Column("opened_at", UtcDateTime, nullable=False),
    Column("closed_at", UtcDateTime),
    Column("ended", String),
    Index("marks_by_node", "node", "opened_at"),
)
