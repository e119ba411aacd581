"""Parameters and nodes -> the plan: which runs there will be, in which order, and what will not run and why."""
