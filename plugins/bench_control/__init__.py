"""The control plane: decides what to run, launches it, judges the results and reports them. It never imports torch.

    params -> plan -> pods -> results -> checks -> report -> alert

Read `plan.py`, `variance.py` and `assess.py` first; `dag_factory.py` puts them into Airflow, `cli.py` onto a command
line.
"""
