"""What the Benchmarks page shows: bounded reads of the history, and the acknowledgement of breaches.

`queries.Pages(engine, dag_ids)` holds every read; rows of DAGs that are not in `dag_ids` do not exist for it.
"""
