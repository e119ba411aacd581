"""An Airflow DAG for each campaign file in the folder of TRAINBENCH_CAMPAIGNS: docs/campaign-files.md."""

from trainbench.orchestration.dag_factory import campaign_dags

globals().update(campaign_dags())
