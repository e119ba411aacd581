"""Runs beside each other: equal work, scaling, speed-ups, noise floor and recommendations."""
