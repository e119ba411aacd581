"""**What do benchmarks cost, and what does the measured work cost over time?** Runs when a benchmark publishes results,
on the first of each month for the month before, and by hand. Starts no pod.

It shows the spend of each DAG and month; cost per 1K samples and per 1M tokens of each work on each kind of GPU;
the change since the month before, split into price and throughput; the cost at other prices; and the energy.
Runs without a known price are counted and named; they do not count as free.

The files lie in the store under `cost/`: `COST_REPORT.md`, `cost_report.html`, `costs.json`.
`TRAINBENCH_SCHEDULE_COST_REPORT` sets another time than `0 5 1 * *`. With `none`, and with the local launcher, it runs
by hand only.
"""

# Of a folder, Airflow reads only the files that say "airflow" and "dag".
from trainbench.orchestration.cost_dag import build_cost_report

dag = build_cost_report("cost_report", __doc__)
