"""Is every node as fast as its peers, and as it was? Verdicts from results; nothing here reads or writes a file."""
