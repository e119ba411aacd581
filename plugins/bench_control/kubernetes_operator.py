"""The Airflow operator that runs a Pod manifest on the cluster and does not take silence for success."""

from __future__ import annotations

from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException


class BenchPodOperator(KubernetesPodOperator):
    """Fails where the provider's operator ends as success without a result (its issues 72821 and 73117)."""

    _result: Any = None

    def execute(self, context: Context) -> Any:
        result = super().execute(context)
        return self._require(self._result if result is None else result)

    def trigger_reentry(self, context: Context, event: dict[str, Any]) -> Any:
        self._result = super().trigger_reentry(context, event)
        return self._require(self._result)

    def _require(self, result: Any) -> Any:
        if result is None:
            raise AirflowException("the pod ended without a result, or vanished before it could be read")
        return result
