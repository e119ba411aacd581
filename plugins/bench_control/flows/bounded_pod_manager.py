"""The provider's pod manager, that reads no more of a pod's result than is allowed."""

from __future__ import annotations

from contextlib import closing

from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import generic_api_retry
from airflow.providers.cncf.kubernetes.utils.pod_manager import EMPTY_XCOM_RESULT, PodManager
from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import PodDefaults
from kubernetes.client import V1Pod  # type: ignore[import-untyped]
from kubernetes.stream import stream  # type: ignore[import-untyped]

from bench_control.launching.pods import XCOM_DIR
from bench_image.contract import MAX_RESULT_BYTES, XCOM_FILE

FILE = f"{XCOM_DIR}/{XCOM_FILE}"
# One byte more than is allowed shows that there is more.
COMMAND = f"if [ -s {FILE} ]; then head -c {MAX_RESULT_BYTES + 1} {FILE}; else echo {EMPTY_XCOM_RESULT}; fi"


class BoundedPodManager(PodManager):
    """The provider's own reads the whole file into the worker's memory, however large the pod made it."""

    @generic_api_retry  # type: ignore[untyped-decorator]
    def extract_xcom_json(self, pod: V1Pod) -> str:
        """The result's text, at most one byte more than allowed; whoever calls decodes it."""
        running = stream(
            self._client.connect_get_namespaced_pod_exec,
            pod.metadata.name,
            pod.metadata.namespace,
            container=PodDefaults.SIDECAR_CONTAINER_NAME,
            command=["/bin/sh", "-c", COMMAND],
            stdin=False,
            stdout=True,
            stderr=False,
            tty=False,
            _preload_content=False,
        )
        with closing(running) as client:
            client.run_forever()
            return str(client.read_all())
