"""Alembic migrations of the history database; they ship inside the package and run when a history is opened."""
