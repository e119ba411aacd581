"""The Alembic migration of the history database; it ships inside the package and runs when a history is opened."""
