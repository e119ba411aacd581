"""The pages inside Airflow: bounded reads of the history, their rendering, routes and banners.

`queries.Pages(engine, dag_ids)` has every read, restricted to the DAGs in `dag_ids`.
"""
