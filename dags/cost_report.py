"""The Airflow DAG of the cost report: what benchmarking and the measured work cost, across runs and time."""

from trainbench.orchestration.cost_dag import build_cost_report

dag = build_cost_report("cost_report")
