"""Answers that are made of prices and results: what work will cost, what it did cost, and what it would cost elsewhere.

Before a job: job_estimates.py; before a plan: plan_estimate.py; what fits a GPU: gpu_fit.py. Months, also at
other prices: monthly_cost.py, as a report: monthly_report.py. Prices and formulas: trainbench.prices.
"""
