"""Prices of GPU-hours, rented or owned, and the cost of a run. Amounts are US dollars."""
