"""One campaign on this machine, without Airflow: its pods run one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console

from bench_image.contract.result import RunResult, Status
from bench_image.contract.spec import RunSpec
from trainbench.cli.interrupts import Kept
from trainbench.pipeline import Measured, assess, judge
from trainbench.planning.plan import Plan
from trainbench.pods.local_pods import PROGRESS_MARK, LocalPod
from trainbench.pods.manifests import manifest, pod_title
from trainbench.results.arrivals import PlannedCampaign, store_log
from trainbench.results.artefacts import Store
from trainbench.results.campaign import COMMAND_LINE, Campaign
from trainbench.results.collect import collect
from trainbench.results.running_mark import marked_as_running
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import Settings

if TYPE_CHECKING:
    from trainbench.history.history import History


@contextmanager
def begun(plan: Plan, store: Store) -> Iterator[None]:
    """Store the plan, by which kept results are judged before the campaign's end, and mark the campaign as running."""
    planned = PlannedCampaign(plan=plan, suite=COMMAND_LINE, planned_at=datetime.now(UTC))
    store.write_plan(plan.campaign_id, planned.model_dump_json(indent=1))
    with marked_as_running(store, plan.campaign_id):
        yield


def run_campaign(
    plan: Plan, settings: Settings, store: Store, history: History, console: Console, kept: Kept
) -> Campaign:
    """Run the plan, then each node in breach once more; store every result as soon as its pod has ended.

    The history is that of the DAGs. No node is reported as missing, because no cluster lists the nodes here.
    """
    started_at = datetime.now(UTC)
    results = _run_pods(plan.specs, plan.labels, settings, store, console, kept)
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
    kept.num_planned += len(judged.rerun_specs)
    reruns = _run_pods(judged.rerun_specs, plan.labels, settings, store, console, kept)
    return assess(judged.with_reruns(reruns, datetime.now(UTC)))


def _run_pods(
    specs: Sequence[RunSpec],
    labels: Mapping[str, str],
    settings: Settings,
    store: Store,
    console: Console,
    kept: Kept,
) -> tuple[RunResult, ...]:
    from trainbench.reporting.terminal import plain

    results = []
    for number, spec in enumerate(specs, start=1):
        name = f"{number}/{len(specs)} {pod_title(spec, what=labels.get(spec.identity.group_id))}"
        kept.running = name
        result = _run_pod(spec, settings, name, store, console)
        store.write_result(result)
        kept.num_kept, kept.running = kept.num_kept + 1, None
        console.print(plain(f"{name}: {_outcome(result)}"))
        results.append(result)
    return tuple(results)


def _run_pod(spec: RunSpec, settings: Settings, name: str, store: Store, console: Console) -> RunResult:
    made = manifest(spec, settings)
    pod = LocalPod(made, settings.local_image)
    with _shown(name, console) as show:
        outcome = pod.run(show)
    with suppress(StoreError):  # the result says what is wrong with the store
        store_log(store, made, outcome.log)
    state = outcome.ended_by or f"exit code {outcome.exit_code}"
    (result,) = collect([spec], [outcome.result_text], datetime.now(UTC), [state])
    return result


@contextmanager
def _shown(name: str, console: Console) -> Iterator[Callable[[str], None]]:
    """Show a pod's lines as they come: on a terminal in place, else one line for each phase."""
    from rich.markup import escape

    from trainbench.reporting.terminal import plain

    if console.is_terminal:
        with console.status(escape(name)) as status:
            yield lambda line: status.update(f"{escape(name)}: {escape(_progress(line))}")
        return
    phase = "started"
    console.print(plain(f"{name}: {phase}"), soft_wrap=True)

    def show(line: str) -> None:
        nonlocal phase
        now = line.removeprefix(PROGRESS_MARK).split(maxsplit=1)
        if line.startswith(PROGRESS_MARK) and now and now[0] != phase:
            phase = now[0]
            console.print(plain(f"{name}: {phase}"), soft_wrap=True)

    yield show


def _progress(line: str) -> str:
    return "result received" if line.startswith('{"schema_version"') else line[:100]


def _outcome(result: RunResult) -> str:
    if result.status is not Status.OK or result.performance.samples_per_second is None:
        return f"{result.status.value}: {result.error.message.splitlines()[0] if result.error else ''}"
    seconds = (result.finished_at - result.started_at).total_seconds()
    return f"{result.performance.samples_per_second:.3g} samples/s, {seconds:.0f} s"
