"""The Airflow operator that runs a Pod manifest on this machine: same interface as `KubernetesPodOperator`'s."""

from __future__ import annotations

import json
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from bench_control.installation.settings import read_settings
from bench_control.launching.local_pods import LocalPod
from bench_image.contract import MAX_RESULT_BYTES


class LocalPodOperator(BaseOperator):
    """Returns the pod's result as XCom; a failed pod's result is pushed too, before the task fails."""

    ui_color = "#d7f0e3"

    def __init__(self, *, pod_template_dict: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pod_template_dict = pod_template_dict
        self._pod: LocalPod | None = None

    def execute(self, context: Context) -> Any:
        self._pod = LocalPod(self.pod_template_dict, read_settings().local_image)
        outcome = self._pod.run(self._log_line)
        if outcome.result_text is None:
            cause = outcome.ended_by or f"exit code {outcome.exit_code}"
            raise AirflowFailException(f"the pod left no result: {cause}")
        if len(outcome.result_text) > MAX_RESULT_BYTES:
            raise AirflowFailException(f"the pod's result is larger than the {MAX_RESULT_BYTES} bytes allowed")
        result = _decoded(outcome.result_text)
        if outcome.exit_code != 0:
            context["ti"].xcom_push(key="return_value", value=result)
            error = (result.get("error") or {}) if isinstance(result, dict) else {}
            raise AirflowFailException(f"{error.get('kind', 'error')}: {error.get('message', 'see the log')}")
        return result

    def on_kill(self) -> None:
        if self._pod is not None:
            self._pod.stop("the task was stopped")

    def _log_line(self, line: str) -> None:
        self.log.info(f"result of {len(line)} bytes" if line.startswith('{"schema_version"') else line)


def _decoded(text: str) -> Any:
    """JSON where it is JSON; else the text itself, which the collection then refuses with a reason."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON, and Airflow could not pass it on")
