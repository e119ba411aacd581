"""Results in other files: compare them across machines, export, import, and re-index the history."""
