"""The Airflow DAG `metrics`: the fleet as gauges. There is none where Airflow's metrics are off."""

from trainbench.orchestration.metrics_dag import build_metrics, metrics_are_on

if metrics_are_on():
    dag = build_metrics("metrics")
