"""`make demo` and `make ui`: the node check on this machine, with a tiny model on the CPU and no cluster."""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))  # the imports below take a second

import argparse
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench_image.contract.result import Status
from local_airflow import STATE, LocalAirflow, LocalAirflowError
from trainbench.cluster.local_nodes import TRIAL_NODES
from trainbench.cluster.running_pods import LivePod, local_pods
from trainbench.core.formats import listing
from trainbench.core.states import NodeState
from trainbench.core.verdicts import State, Why
from trainbench.history.history import open_history
from trainbench.params.campaign_params import LOCAL_DEFAULTS, parse_params
from trainbench.planning.plan import campaign_id
from trainbench.reporting.terminal import verdict_table
from trainbench.results.artefacts import open_store
from trainbench.results.store_files import StoreError

DAG_ID = "node_consistency"
RUN_TIMEOUT_S = 900
STOPS = (signal.SIGINT, signal.SIGTERM)
ENDED = {"success", "failed"}
SHOWN = ENDED | {"skipped", "upstream_failed"}
PHASES = {
    "import": "loading the libraries",
    "build": "building the model",
    "warmup": "warming up",
    "measure": "measuring, in turn with the other nodes",
}
POD_LOOKS, POD_LOOK_S = 4, 0.5  # looks at the pods' own progress between two questions to Airflow
REPORTS = ("report.html", "BENCHMARK_REPORT.md", "COST_REPORT.md", "metrics.csv")
NEXT = """\
next:
  make demo DRILL=node-3                    slow a node on purpose: the check must find it
  make ui NIGHTS=14                         the pages in Airflow, with a fortnight of made-up nights beside this one
  .venv/bin/trainbench run --device cuda    this machine's GPU, if it has one: judged from the first run on"""
# Not a terminal (a pipe, CI): room for the table and the sentences below it.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def main() -> int:
    arguments = _arguments()
    for signum in STOPS:  # set, not assumed: a shell starts background jobs with SIGINT ignored
        signal.signal(signum, _stop)
    try:
        console.print(_outlook(arguments), markup=False, soft_wrap=True)
        state = STATE
        if nights := arguments.made_up_nights:
            state /= "made-up"  # invented figures never enter the history that the command line reads
            _make_up(nights, state / "store")
        with LocalAirflow(arguments.port, with_triggerer=arguments.ui, state=state) as airflow:
            airflow.wait_until_healthy(DAG_ID)
            airflow.end_stopped_runs(DAG_ID)
            ended = _run_check(airflow, arguments.drill)
            return _keep_open(airflow) if arguments.ui else ended
    except LocalAirflowError as error:
        console.print(f"demo: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("demo: stopped; no process is left behind", markup=False)
        return 130


def _stop(_signum: int, _frame: object) -> None:
    """Once is enough: a second Ctrl-C must not cut the cleaning-up short and leave processes behind."""
    for signum in STOPS:
        signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="of Airflow on 127.0.0.1 (default 8080)")
    parser.add_argument("--drill", choices=TRIAL_NODES, help="slow this node on purpose")
    parser.add_argument("--ui", action="store_true", help="keep Airflow open until Ctrl-C")
    parser.add_argument(
        "--made-up-nights",
        type=int,
        choices=range(1, 366),
        metavar="1..365",
        help="with --ui: show so many nights of ten nodes named made-up-gpu-..., whose figures are invented, too",
    )
    return parser.parse_args()


def _make_up(nights: int, store: Path) -> None:
    from made_history import NODES, record_nights  # it needs the tests' builders

    shutil.rmtree(store, ignore_errors=True)
    record_nights(open_history(store=open_store(str(store))), num_nights=nights, nodes=[f"made-up-{n}" for n in NODES])


def _outlook(arguments: argparse.Namespace) -> str:
    """The announcement of the demo: its steps and how long they take."""
    start = "Airflow starts on this machine (SQLite, LocalExecutor, loopback only): half a minute on two cores."
    params = parse_params(LOCAL_DEFAULTS)
    slowed = f" {arguments.drill} is slowed by {params.drill_slowdown_pct:.0f} % on purpose." if arguments.drill else ""
    return (
        f"{start} Then a tiny model is trained on the CPU for each of four nodes, which measure in turn, and the nodes "
        f"are compared: about two minutes in all, three where another program keeps a core busy.{slowed} Rates are "
        "samples per second of the process' own CPU time, so that other programs do not slow a node; a node is out of "
        f"its limits from {params.tolerances.samples_per_second_pct:.0f} % off. A CPU trial has no price."
    )


def _keep_open(airflow: LocalAirflow) -> int:
    console.print(
        f"\nAirflow stays open at {airflow.url}/plugin/trainbench (no login, this machine only). Ctrl-C stops it.",
        soft_wrap=True,
    )
    while True:
        time.sleep(2)
        airflow.get("/api/v2/monitor/health")


def _run_check(airflow: LocalAirflow, drill: str | None) -> int:
    """0: green, or red for the drill alone, which was to be found; 1: the DAG run is red."""
    # named, so that no other node of this history, as one that is made up, counts as missing
    run_id = airflow.trigger(DAG_ID, {"nodes": list(TRIAL_NODES)} | ({"drill_node": drill} if drill else {}))
    started = time.monotonic()
    console.print(
        f"running {DAG_ID}; in another terminal, look at {airflow.url}/dags/{DAG_ID}/runs/{run_id}", soft_wrap=True
    )
    state = _watch(airflow, run_id)
    console.print(f"DAG run ended as [bold]{state}[/] after {time.monotonic() - started:.0f} s\n")
    store, name = open_store(str(airflow.state / "store")), campaign_id(DAG_ID, run_id)
    try:
        campaign = store.read_campaign(name)
        console.print(verdict_table(campaign))
    except StoreError:
        raise LocalAirflowError(f"the run published no report. {airflow.cause(DAG_ID, run_id)}") from None
    found = drill is not None and _found_only(drill, campaign.node_states)
    timed_out = {run.spec.identity.node for run in campaign.results if run.status is Status.TIMEOUT}
    meaning = _meaning(drill, found, campaign.node_states, timed_out)
    console.print(f"\nwhat you see: {meaning}\n\nreports:", soft_wrap=True)
    for report in REPORTS:
        console.print(f"  {store.summary_address(name, report)}", soft_wrap=True, markup=False)
    console.print(f"\n{NEXT}", soft_wrap=True, markup=False)
    return 0 if found or (state == "success" and not drill) else 1


def _meaning(drill: str | None, found: bool, states: Sequence[NodeState], timed_out: Collection[str]) -> str:
    """The verdict for somebody who sees it for the first time. `timed_out`: the nodes of runs that took too long."""
    noisy = [own.node for own in states if own.why is Why.NOISY or own.node in timed_out]
    if noisy:
        return (
            f"this machine is too busy to measure {listing(noisy)}. The table has what was measured, and looks as it "
            "would on a quiet machine. Try again when other programs rest."
        )
    if found:
        return f"{drill} was found, as it should: the run is red for the drill and for nothing else."
    limit_pct = parse_params(LOCAL_DEFAULTS).tolerances.samples_per_second_pct
    return (
        "each node did the same work, and is held against the median of the others: slow is more than "
        f"{limit_pct:.0f} % below. On GPUs the limit is tighter, and a node's own past and the known level of its GPU "
        "count, too."
    )


def _found_only(drill: str, states: Sequence[NodeState]) -> bool:
    """Whether the drill was found, and no other node is red."""
    found = [own for own in states if own.state is State.DRILL and own.why is Why.SLOW]
    return [own.node for own in found] == [drill] and not any(own.state is State.RED for own in states)


def _watch(airflow: LocalAirflow, run_id: str) -> str:
    """Prints what each node does until the run ends; returns how it ended."""
    base, seen = f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}", set[object]()
    give_up = time.monotonic() + RUN_TIMEOUT_S
    while time.monotonic() < give_up:
        run = airflow.get(base)
        tasks = (airflow.get(f"{base}/taskInstances?limit=1000") or {"task_instances": []})["task_instances"]
        _print_new(seen, task_lines(tasks))
        for _ in range(POD_LOOKS):
            _print_new(seen, pod_lines(local_pods(datetime.now(UTC))))
            time.sleep(POD_LOOK_S)
        if run and run["state"] in ENDED:
            return str(run["state"])
    raise LocalAirflowError(
        f"the run did not end within {RUN_TIMEOUT_S} s: look into {airflow.state / 'airflow' / 'logs'}"
    )


def task_lines(instances: Iterable[Mapping[str, Any]]) -> Iterator[tuple[object, str]]:
    """A key and a line for the end of each task; a pod's task names its node, as Airflow renders it then."""
    for ti in sorted(instances, key=lambda ti: ti["start_date"] or "~"):
        if ti["state"] in SHOWN:
            node = str(ti["rendered_map_index"] or "all nodes").partition(" / ")[0]
            took = f" after {ti['duration']:.1f} s" if ti["duration"] and ti["state"] in ENDED else ""
            state = ti["state"].replace("_", " ")
            yield (ti["task_id"], ti["map_index"], state), f"{node}: {ti['task_id']}, {state}{took}"


def pod_lines(running: Iterable[LivePod]) -> Iterator[tuple[object, str]]:
    """A key and a line for the phase of each of the demo's pods."""
    for pod in running:
        phase = pod.progress.phase
        if pod.node in TRIAL_NODES and phase in PHASES:
            yield (pod.pod, phase), f"{pod.node}: {PHASES[phase]}"


def _print_new(seen: set[object], lines: Iterable[tuple[object, str]]) -> None:
    for key, line in lines:
        if key not in seen:
            console.print(f"  {time.strftime('%H:%M:%S')}  {line}", markup=False)
        seen.add(key)


if __name__ == "__main__":
    sys.exit(main())
