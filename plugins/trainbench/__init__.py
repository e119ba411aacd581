"""The control plane: decides what to run, launches it, judges the results and reports them. It never imports torch.

    params -> plan -> pods -> results -> checks -> report -> alert

One package for each step, and each knows only those before it (the layers in pyproject.toml; `lint-imports` holds
them). Read `pipeline.py` first: one night as named steps. `orchestration/dag_factory.py` puts them into Airflow,
`cli/app.py` onto a command line.
"""

__version__ = "0.2.0"  # of the wheel and the images; tests/unit/scripts/test_release.py names the files that follow
