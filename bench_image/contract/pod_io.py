"""Environment variables and files through which a pod receives its spec and returns its result."""

from __future__ import annotations

MAX_RESULT_BYTES = 4_000_000
RESULT_FILE = "result.json"
SPEC_ENV = "TRAINBENCH_SPEC"
OUTPUT_DIR_ENV = "TRAINBENCH_OUTPUT_DIR"
# The folder in which Airflow's XCom sidecar looks for the result, under the name that it expects.
XCOM_DIR_ENV = "TRAINBENCH_XCOM_DIR"
XCOM_FILE = "return.json"
TEMPLATE_ENV = "TRAINBENCH_TEMPLATE_DIGEST"
NO_TEMPLATE = "none"
