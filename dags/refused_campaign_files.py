"""Makes no Airflow DAG: its import error names each wrong campaign file, line and reason."""

from trainbench.orchestration.dag_factory import refuse_wrong_files

refuse_wrong_files()
