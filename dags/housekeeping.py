"""The Airflow DAG `housekeeping`: leaked pods and expired artefacts."""

from trainbench.orchestration.housekeeping_dag import build_housekeeping

dag = build_housekeeping("housekeeping")
