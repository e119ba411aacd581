"""Checks of the evidence itself: missing nodes, missing figures, unequal work, wrong clocks, GPUs, drills."""
