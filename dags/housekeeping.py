"""The Airflow DAG that tidies up: leaked pods and expired artefacts."""

from bench_control.flows.housekeeping import build_housekeeping

dag = build_housekeeping("housekeeping")
