"""Answers that are made of prices and results: what work will cost, what it did cost, and what it would cost elsewhere.

Before a job: job_estimates.py, estimate.py; before a plan: plan_estimate.py; what fits a GPU: gpu_fit.py. The cost of
months: monthly_report.py; what if it were paid at other prices: other_prices.py. Prices, formulas: trainbench.prices.
"""
