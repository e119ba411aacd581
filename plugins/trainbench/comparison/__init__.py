"""Runs beside each other: which may be ranked, how they scale, what helped, and how much is only noise."""
