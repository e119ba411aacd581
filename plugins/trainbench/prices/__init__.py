"""What a GPU-hour costs, and what work costs at it. Pure but for the price tables; knows no history and no report.

The price of a GPU: price_tables.py, price_import.py. A quote of work at each price, and all formulas: quote.py. The
cost of a run that has ended: run_cost.py. Estimates, what-ifs and the report of months are in trainbench.cost.
"""
