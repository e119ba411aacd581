"""Each node against its own earlier campaigns: baseline, steps and drifts, renames, streaks."""
