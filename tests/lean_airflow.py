"""`python -m tests.kube.forking_airflow scheduler`, or `celery worker`: Airflow with the clients of Kubernetes loaded.

Its tasks are forks of it, and each would spend a second on the same 1,700 modules.
"""

import sys

import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
