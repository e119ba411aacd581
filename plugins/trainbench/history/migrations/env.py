"""Run by Alembic inside the transaction that `history.open_history` has begun."""

from __future__ import annotations

from alembic import context

from trainbench.history.run_tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
