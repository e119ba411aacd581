"""One campaign on this machine, without Airflow: its pods run one after another, or take turns."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from bench_image.contract.result import RunResult, Status
from bench_image.contract.spec import RunSpec
from trainbench.cli.planned import Kept
from trainbench.core.formats import duration, figure, listing
from trainbench.judging.levels import NO_LEVELS, load_levels
from trainbench.pipeline import Measured, assess, judge
from trainbench.planning.plan import Plan
from trainbench.pods.local_pods import PROGRESS_MARK, LocalOutcome, LocalPod
from trainbench.pods.machine_turns import MachineTurns, Slot, slots
from trainbench.pods.manifests import manifest, pod_title
from trainbench.results.arrivals import PlannedCampaign, store_log
from trainbench.results.artefacts import Store
from trainbench.results.campaign import COMMAND_LINE, Campaign
from trainbench.results.collect import collect
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import Settings

if TYPE_CHECKING:
    from trainbench.history.history import History

REMIND_S = 30.0  # so long nothing may end before a line says what still runs
PHASE_BEGAN = re.compile(r" seconds_since_start=\S+$")


def store_plan(plan: Plan, store: Store) -> None:
    """By it kept results are judged before the campaign's end."""
    planned = PlannedCampaign(plan=plan, suite=COMMAND_LINE, planned_at=datetime.now(UTC))
    store.write_plan(plan.campaign_id, planned.model_dump_json(indent=1))


def run_campaign(
    plan: Plan, settings: Settings, store: Store, history: History, console: Console, kept: Kept
) -> Campaign:
    """Run the plan, then the suspects and a node that is well once more; store each result when its pod has ended.

    The history is that of the DAGs. No node is reported as missing, because no cluster lists the nodes here.
    """
    started_at = datetime.now(UTC)
    results = run_pods(plan.specs, plan.labels, settings, store, console, kept)
    measured = Measured(
        plan=plan,
        results=results,
        suite=COMMAND_LINE,
        started_at=started_at,
        finished_at=datetime.now(UTC),
        history=history,
        levels=load_levels(plan.params.levels, store.read_levels()) if plan.judges_nodes else NO_LEVELS,
    )
    judged = judge(measured)
    if judged.rerun_specs:
        again = dict.fromkeys(spec.identity.node for spec in judged.rerun_specs)
        console.print(f"once more, to confirm: {', '.join(again)}")
    kept.num_planned += len(judged.rerun_specs)
    reruns = run_pods(judged.rerun_specs, plan.labels, settings, store, console, kept)
    return assess(judged.with_reruns(reruns, datetime.now(UTC)))


def run_pods(
    specs: Sequence[RunSpec],
    labels: Mapping[str, str],
    settings: Settings,
    store: Store,
    console: Console,
    kept: Kept,
) -> tuple[RunResult, ...]:
    """The results in the order of `specs`. Pods that may share the machine run at the same time."""
    from trainbench.reporting.terminal import plain

    runs = [
        _Run(
            name=f"{number}/{len(specs)} {pod_title(spec, what=labels.get(spec.identity.group_id))}",
            spec=spec,
            slot=slot,
        )
        for number, (spec, slot) in enumerate(zip(specs, slots(specs), strict=True), start=1)
    ]
    results: dict[str, RunResult] = {}
    for _, members in groupby(runs, key=lambda run: run.slot.group):
        group = {run.name: run for run in members}
        kept.running = listing(group)
        with _shown(group, console) as shown, _started(group.values(), settings, shown) as ended:
            for run, made, outcome in ended:
                log = None
                with suppress(StoreError):  # the result says what is wrong with the store
                    log = store_log(store, made, outcome.log)
                (result,) = collect([run.spec], [outcome.result_text], datetime.now(UTC), ends=[outcome.end])
                store.write_result(result)
                results[run.name] = result
                left = [name for name in group if name not in results]
                kept.num_kept, kept.running = kept.num_kept + 1, listing(left) if left else None
                console.print(plain(f"{run.name}: {_outcome(result)}"))
                if run.spec.work.own_job and result.error:  # its message ends with the last lines of its log
                    for line in result.error.message.splitlines()[1:]:
                        console.print(plain(f"| {line}"), soft_wrap=True)
                if result.error and log:
                    console.print(plain(f"{run.name}: its log is {log}"), soft_wrap=True)
    return tuple(results[run.name] for run in runs)


class _Run(NamedTuple):
    name: str
    spec: RunSpec
    slot: Slot


Ended = tuple[_Run, Mapping[str, Any], LocalOutcome]


@contextmanager
def _started(group: Collection[_Run], settings: Settings, shown: _Shown) -> Iterator[Iterator[Ended]]:
    """The pods of a group as they end; on the way out none is left."""
    pods: dict[Future[LocalOutcome], tuple[_Run, Mapping[str, Any], LocalPod]] = {}
    with ThreadPoolExecutor(len(group)) as threads:
        try:
            for run in group:
                made = manifest(run.spec, settings)
                turns = MachineTurns(settings.store, run.spec.identity.campaign_id, run.slot)
                pod = LocalPod(made, settings.local_image, turns)
                pods[threads.submit(pod.run, partial(shown.show, run.name))] = (run, made, pod)
            yield _as_they_end(pods, shown)
        except BaseException:
            for _, _, pod in pods.values():
                pod.kill("the campaign was stopped")
            raise


def _as_they_end(
    pods: Mapping[Future[LocalOutcome], tuple[_Run, Mapping[str, Any], LocalPod]], shown: _Shown
) -> Iterator[Ended]:
    running, begin = set(pods), time.monotonic()
    while running:
        ended, running = wait(running, timeout=REMIND_S, return_when=FIRST_COMPLETED)
        if not ended:
            shown.remind([pods[future][0].name for future in running], time.monotonic() - begin)
        yield from ((*pods[future][:2], future.result()) for future in ended)


class _Shown(NamedTuple):
    """`show`: a pod's line; `remind`: what still runs, after so many seconds."""

    show: Callable[[str, str], None]
    remind: Callable[[Sequence[str], float], None]


@contextmanager
def _shown(names: Iterable[str], console: Console) -> Iterator[_Shown]:
    """Show the pods' lines as they come: on a terminal in place, else one line for each phase of each pod, and where
    each is when nothing has ended for a while.
    """
    from rich.markup import escape

    from trainbench.reporting.terminal import plain

    if console.is_terminal:
        with console.status(escape(listing(names))) as status:
            yield _Shown(
                lambda name, line: status.update(f"{escape(name)}: {escape(brief(line))}"), lambda names, after_s: None
            )
        return
    newest = dict.fromkeys(names, "started")
    for name, phase in newest.items():
        console.print(plain(f"{name}: {phase}"), soft_wrap=True)

    def show(name: str, line: str) -> None:
        now = line.removeprefix(PROGRESS_MARK)
        if not line.startswith(PROGRESS_MARK) or not now.strip():
            return
        before, newest[name] = newest[name], now
        if now.split()[0] != before.split()[0]:
            console.print(plain(f"{name}: {now.split()[0]}"), soft_wrap=True)

    def remind(names: Sequence[str], after_s: float) -> None:
        for name in sorted(names, key=list(newest).index):
            now = brief(newest[name])
            console.print(plain(f"{name}: after {duration(after_s)} still in {now}"), soft_wrap=True)

    yield _Shown(show, remind)


def brief(line: str) -> str:
    """A pod's line as one of a terminal: "measure window=2/3 steps=24"."""
    return PHASE_BEGAN.sub("", line.removeprefix(PROGRESS_MARK))[:100]


def _outcome(result: RunResult) -> str:
    if result.status is not Status.OK or result.performance.samples_per_second is None:
        return f"{result.status.value}: {result.error.message.splitlines()[0] if result.error else ''}"
    seconds = (result.finished_at - result.started_at).total_seconds()
    read = f" ({result.chosen.why})" if result.spec.work.own_job and result.chosen else ""
    return f"{figure(result.performance.samples_per_second, 3)} samples/s, {seconds:.0f} s{read}"
