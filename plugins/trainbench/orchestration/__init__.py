"""The whole flow put together: a campaign assessed and published, and the DAGs that do so in Airflow."""
