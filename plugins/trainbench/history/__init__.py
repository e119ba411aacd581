"""The SQL database of all runs, verdicts and notices, with its schema."""
