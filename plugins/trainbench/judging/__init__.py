"""Verdicts from results: each node against its peers and against its own past. Nothing here reads or writes a file."""
