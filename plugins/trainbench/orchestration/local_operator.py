"""Runs a Pod manifest on this machine as an Airflow task: the local counterpart of `BenchPodOperator`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from bench_image.contract.result_lines import ABSENT
from trainbench.pods.local_pods import LocalPod
from trainbench.pods.machine_turns import MachineTurns
from trainbench.pods.pod_end import END, EndKind, PodEnd
from trainbench.pods.pod_log import MAX_LINE
from trainbench.settings.environment import read_settings


class LocalPodTask:
    """Runs the pod, stores its result and returns the address as XCom, which a failed run's task pushes too."""

    def __init__(self, manifest: dict[str, Any], log: Any, turns: MachineTurns | None = None) -> None:
        """`turns`: where the pod shares the machine with others."""
        self._manifest, self._log = manifest, log
        self._pod = LocalPod(manifest, read_settings().local_image, turns)

    def to_its_end(self, context: Context) -> Any:
        from trainbench.results.arrivals import keep_log, store_arrival
        from trainbench.results.artefacts import open_store

        outcome = self._pod.run(lambda line: self._log.info(line[:MAX_LINE]))
        store = open_store(read_settings().store)
        keep_log(store, self._manifest, outcome.log, self._log.warning)
        if outcome.result_text is None:
            cause = outcome.ended_by or f"exit code {outcome.exit_code}"
            if outcome.missing != ABSENT:
                end = PodEnd(kind=EndKind.INVALID_RESULT, message=f"{outcome.missing} ({cause})")
                context["ti"].xcom_push(key=END, value=end.model_dump(mode="json"))
            raise AirflowFailException(f"the pod left no result: {cause}: {outcome.missing}")
        arrival = store_arrival(store, self._manifest, outcome.result_text, datetime.now(UTC))
        assert arrival is not None, "the manifest is ours"
        if arrival.failure or outcome.exit_code != 0:
            context["ti"].xcom_push(key="return_value", value=arrival.for_xcom)
            raise AirflowFailException(arrival.failure or f"exit code {outcome.exit_code}: see the log")
        return arrival.for_xcom

    def on_kill(self) -> None:
        self._pod.stop("the task was stopped")
