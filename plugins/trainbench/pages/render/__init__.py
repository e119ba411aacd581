"""Rows as HTML tables, charts and CSV."""
