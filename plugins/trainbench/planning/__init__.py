"""Parameters and nodes become the plan: which runs, in which order, and what is skipped and why."""
