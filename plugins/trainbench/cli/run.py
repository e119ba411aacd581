"""One campaign on this machine, without Airflow: its pods run one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console

from bench_image.contract.result import RunResult, Status
from bench_image.contract.spec import RunSpec
from trainbench.pipeline import Measured, assess, judge
from trainbench.planning.plan import Plan
from trainbench.pods.local_pods import LocalPod
from trainbench.pods.manifests import manifest, title
from trainbench.results.arrivals import store_log
from trainbench.results.artefacts import Store
from trainbench.results.campaign import COMMAND_LINE, Campaign
from trainbench.results.collect import collect
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import Settings

if TYPE_CHECKING:
    from trainbench.history.history import History


def run_campaign(plan: Plan, settings: Settings, store: Store, history: History, console: Console) -> Campaign:
    """Run the plan, then each node in breach once more; store every result as soon as its pod has ended.

    The history is that of the DAGs. No node is reported as missing, because no cluster lists the nodes here.
    """
    started_at = datetime.now(UTC)
    try:
        results = _run_pods(plan.specs, plan.labels, settings, store, console)
        measured = Measured(
            plan=plan,
            results=results,
            suite=COMMAND_LINE,
            started_at=started_at,
            finished_at=datetime.now(UTC),
            history=history,
        )
        judged = judge(measured)
        if judged.suspects:
            console.print(f"once more, to confirm: {', '.join(judged.suspects)}")
        reruns = _run_pods(judged.rerun_specs, plan.labels, settings, store, console)
    except (KeyboardInterrupt, SystemExit):
        console.print(f"stopped; what was measured is stored: trainbench check {plan.campaign_id}", soft_wrap=True)
        raise
    return assess(judged.with_reruns(reruns, datetime.now(UTC)))


def _run_pods(
    specs: Sequence[RunSpec], labels: Mapping[str, str], settings: Settings, store: Store, console: Console
) -> tuple[RunResult, ...]:
    from trainbench.reporting.terminal import plain

    results = []
    for number, spec in enumerate(specs, start=1):
        name = f"{number}/{len(specs)} {title(spec, what=labels.get(spec.identity.group_id))}"
        result = _run_pod(spec, settings, name, store, console)
        store.write_result(result)
        console.print(plain(f"{name}: {_outcome(result)}"))
        results.append(result)
    return tuple(results)


def _run_pod(spec: RunSpec, settings: Settings, name: str, store: Store, console: Console) -> RunResult:
    made = manifest(spec, settings)
    pod = LocalPod(made, settings.local_image)
    with console.status(name) as status:
        outcome = pod.run(lambda line: status.update(f"{name}: {_progress(line)}"))
    with suppress(StoreError):  # the result says what is wrong with the store
        store_log(store, made, outcome.log)
    state = outcome.ended_by or f"exit code {outcome.exit_code}"
    (result,) = collect([spec], [outcome.result_text], datetime.now(UTC), [state])
    return result


def _progress(line: str) -> str:
    from rich.markup import escape

    return "result received" if line.startswith('{"schema_version"') else escape(line[:100])


def _outcome(result: RunResult) -> str:
    if result.status is not Status.OK or result.performance.samples_per_second is None:
        return f"{result.status.value}: {result.error.message.splitlines()[0] if result.error else ''}"
    seconds = (result.finished_at - result.started_at).total_seconds()
    return f"{result.performance.samples_per_second:.3g} samples/s, {seconds:.0f} s"
