"""Bounded reads of the history, as rows for the pages."""
