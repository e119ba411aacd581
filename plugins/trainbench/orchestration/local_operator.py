"""The Airflow operator that runs a Pod manifest on this machine: same interface as `KubernetesPodOperator`'s."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from trainbench.orchestration.kept_results import keep_log, keep_result
from trainbench.pods.local_pods import LocalPod
from trainbench.pods.machine_turns import MachineTurns
from trainbench.pods.pod_end import END, EndKind, PodEnd
from trainbench.pods.pod_log import shown_line
from trainbench.pods.result_text import ResultTextError, decode_result
from trainbench.settings.environment import read_settings


class LocalPodOperator(BaseOperator):
    """Runs the pod and returns its result as XCom. A failed pod's result is pushed before the task fails."""

    ui_color = "#d7f0e3"

    def __init__(self, *, pod_template_dict: dict[str, Any], turns: MachineTurns | None = None, **kwargs: Any) -> None:
        """`turns`: where the pod shares the machine with others."""
        super().__init__(**kwargs)
        self.pod_template_dict, self.turns = pod_template_dict, turns
        self._pod: LocalPod | None = None

    def execute(self, context: Context) -> Any:
        self._pod = LocalPod(self.pod_template_dict, read_settings().local_image, self.turns)
        outcome = self._pod.run(lambda line: self.log.info(shown_line(line)))
        keep_log(self.pod_template_dict, outcome.log, self.log)
        if outcome.result_text is None:
            cause = outcome.ended_by or f"exit code {outcome.exit_code}"
            raise AirflowFailException(f"the pod left no result: {cause}")
        try:
            result = decode_result(outcome.result_text)
        except ResultTextError as error:
            end = PodEnd(kind=EndKind.INVALID_RESULT, message=str(error))
            context["ti"].xcom_push(key=END, value=end.model_dump(mode="json"))
            raise AirflowFailException(end.message) from None
        keep_result(self.pod_template_dict, result, self.log)
        if outcome.exit_code != 0:
            context["ti"].xcom_push(key="return_value", value=result)
            failure = (result.get("error") or {}) if isinstance(result, dict) else {}
            raise AirflowFailException(f"{failure.get('kind', 'error')}: {failure.get('message', 'see the log')}")
        return result

    def on_kill(self) -> None:
        if self._pod is not None:
            self._pod.stop("the task was stopped")
