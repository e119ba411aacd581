"""The pages inside Airflow: bounded reads of the history, their rendering, routes and banners.

`queries.Pages(engine, dag_ids)` holds every read; rows of DAGs that are not in `dag_ids` do not exist for it.
"""
