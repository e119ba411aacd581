"""The DAGs in Airflow: their tasks, the operators that run pods, and the discovery of nodes."""
