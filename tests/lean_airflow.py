"""`python -m tests.lean_airflow COMMAND ...`: the command `airflow` at less CPU time, for the tests.

What imports make stays: looking for garbage among it takes a seventh of a component's start. Tasks are forks of the
scheduler or of a worker: each that reaches a cluster would spend a second on the Kubernetes clients' 1,700 modules, and
each would check the schemas of all fields of its form several times, which tests/dag does once.
"""

import gc
import importlib
import os
import runpy
import sys

from jsonschema import validators

PROGRAM = (sys.executable, "-m", "tests.lean_airflow")


def main() -> None:
    gc.set_threshold(200_000, 50, 100)
    validators.Draft202012Validator.check_schema = lambda *_, **__: None  # type: ignore[method-assign]
    if sys.argv[1] in ("scheduler", "celery") and os.environ["TRAINBENCH_LAUNCHER"] == "kubernetes":
        importlib.import_module("airflow.providers.cncf.kubernetes.operators.pod")
    runpy.run_module("airflow", run_name="__main__")


if __name__ == "__main__":
    main()
