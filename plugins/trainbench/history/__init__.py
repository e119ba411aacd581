"""The SQL database of all runs, verdicts, breaches and warnings, with its schema."""
