"""An Airflow DAG for each campaign file in the folder of TRAINBENCH_CAMPAIGNS: docs/campaign-files.md."""

from trainbench.orchestration.campaign_dags import campaign_dags

globals().update(campaign_dags())
