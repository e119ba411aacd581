"""`trainbench`: the same flow as the DAGs, without Airflow. Commands only; the modules that they call do the work."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench_image.contract.work import Device
from trainbench import __version__
from trainbench.cli import base, baseline, campaigns, cluster, completions, exchange, levels, money, params, planned
from trainbench.cli.base import ExitCode, StoreUrl
from trainbench.cli.campaigns import Source
from trainbench.core.formats import count
from trainbench.core.user_error import UserError
from trainbench.core.verdicts import State, Why
from trainbench.params.campaign_kind import CAMPAIGN_SUFFIXES, Suite

if TYPE_CHECKING:
    from trainbench.results.artefacts import Store
    from trainbench.results.campaign import Campaign
    from trainbench.results.store_files import BrokenFile

EXIT_CODES = """Exit codes:

0: no node is red; everything is ready.

1: a node is red; a drill was detected, or should have been; no run gave a figure (also when all nodes were busy); a \
stored result is broken; or `doctor` reports a failure.

2: wrong usage, or something is missing (store, interpreter, disk); standard error says what to do.

3: no node could be checked: nothing to be compared with, too much noise, or taken by other work.

4: at least half of the nodes have become slower, and none is red.

70: a defect of trainbench; standard error has Python's traceback.

130: stopped by Ctrl-C.

141: the program that reads the output ended first, such as `head`."""

app = base.App(
    "Check and compare",
    name="trainbench",
    cls=base.Root,
    help="Benchmark LLM training on every node, judge the nodes against each other, and price the work. Begin with "
    "`trainbench doctor`, then `trainbench run`.",
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for part in (params, cluster, campaigns, exchange, money):
    app.add_typer(part.app)
for name, group in (("baseline", baseline.app), ("levels", levels.app), ("nodes", cluster.nodes_app)):
    app.add_typer(group, name=name, rich_help_panel=group.panel)

Nodes = Annotated[
    str | None,
    typer.Option(
        help="Node names, comma-separated. Default: TRAINBENCH_LOCAL_NODES, else this machine (cpu: four trial nodes)."
    ),
]
DeviceName = Annotated[
    Device | None,
    typer.Option(help="cuda: the nightly check's configuration; cpu, the default: a trial with a tiny model."),
]
SuiteName = Annotated[
    Suite | None,
    typer.Option(help="The kind of campaign, named after its DAG. Default: the campaign file's, else the first."),
]
Set = Annotated[list[str] | None, base.set_option("A parameter of the trigger form")]
Model = Annotated[
    str | None,
    typer.Option(
        help="Short for --set model=...: a name, the path of a config.json, or name@commit of the hub.",
        autocompletion=completions.models,
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Short for --set quick=true: a sanity check.")]


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"trainbench {__version__}")
        raise typer.Exit(ExitCode.OK)


@app.callback()
def trainbench(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The options that stand before a command."""


@app.command()
def plan(
    campaign_file: Annotated[
        Path | None,
        typer.Argument(help="A campaign file; options replace what it says."),
    ] = None,
    suite: SuiteName = None,
    nodes: Nodes = None,
    device: DeviceName = None,
    set_: Set = None,
    model: Model = None,
    quick: Quick = False,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="Plan for this GPU instead of those here: H200, 'A100 80GB'. Implies --device cuda.",
            autocompletion=completions.gpus,
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=64, help="Number of such GPUs in a node. Default: as many as here, else 1.")
    ] = None,
    with_manifests: Annotated[
        bool, typer.Option("--manifests", help="Print the Pods as YAML for kubectl; `collect` reads their results.")
    ] = False,
) -> None:
    """Show the runs in their order, their duration, GPU-hours and cost, and what is skipped and why. Starts nothing."""
    from trainbench.cost.gpu_fit import reading
    from trainbench.pods.manifests import manifests
    from trainbench.settings.campaign_file import read_campaign_file

    settings = base.read_settings()
    if gpus is not None and gpu is None:
        raise UserError("--gpus is the number of GPUs that --gpu names: give --gpu as well, such as --gpu H200")
    if gpu and device is Device.CPU:
        raise UserError(f"--gpu '{gpu}' is planned on --device cuda, not {device}: leave one of the two options out")
    assumed = planned.assumed_gpus(gpu, gpus) if gpu else None
    if gpu and assumed and (choice := reading(gpu, assumed.gpu_product or gpu)):
        base.show(choice, stderr=True)
    campaign = read_campaign_file(campaign_file) if campaign_file else None
    chosen = suite or (campaign.suite if campaign else Suite.NODE_CONSISTENCY)
    name = "dry-run"
    if with_manifests:
        name = planned.campaign_name(campaign.name if campaign else chosen, datetime.now(UTC))
    job = planned.job_values(None, None, None, settings.log_profiles, campaign)
    device = planned.device_of(job, Device.CUDA if gpu else device)
    short = {"model": model, "quick": quick or None}
    made = planned.make_plan(chosen, settings, nodes, device, set_, name, assumed, job, short, starts_here=False)
    if with_manifests:
        planned.refuse_gangs_beside_others(made)
    estimate = planned.estimate_of(made, settings)
    pods = [pod for spec in made.specs for pod in manifests(spec, settings)] if with_manifests else None
    if not base.print_json({**dict(made), "estimate": estimate, "manifests": pods}):
        if pods is None:
            planned.print_plan(made, estimate)
        else:
            import yaml

            typer.echo(yaml.safe_dump_all(pods, sort_keys=False), nl=False)


@app.command()
def run(
    suite: SuiteName = None,
    nodes: Nodes = None,
    device: DeviceName = None,
    set_: Set = None,
    model: Model = None,
    quick: Quick = False,
    environment: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable for COMMAND, shown in results; may be repeated."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="How COMMAND's log is read: a log profile's name. Default: auto, tries all.")
    ] = None,
    store_url: StoreUrl = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CAMPAIGN.yaml | -- COMMAND",
            help="A campaign file, whose values the options replace; or a training command of your own, in which "
            "{gpus}, {node} and the like may stand (docs/own-job.md).",
        ),
    ] = None,
) -> ExitCode:
    """Run a campaign on this machine: plan, pods one after another, judgement, re-runs, report.

    After `--` a training command of your own, whose speed is read from its log.
    """
    from trainbench.settings.campaign_file import read_campaign_file

    settings, campaign_file = base.read_settings(), None
    if command and Path(command[0]).suffix in CAMPAIGN_SUFFIXES:  # no program is named like that
        campaign_file, command = read_campaign_file(Path(command[0])), command[1:]
    chosen = suite or (campaign_file.suite if campaign_file else Suite.NODE_CONSISTENCY)
    job = planned.job_values(command, environment, profile, settings.log_profiles, campaign_file)
    short = {"model": model, "quick": quick or None}
    # Milliseconds: of two runs in one second the second would replace the first in store and history.
    campaign_id = planned.campaign_name(campaign_file.name if campaign_file else chosen, datetime.now(UTC))
    device = planned.device_of(job, device)
    made = planned.make_plan(chosen, settings, nodes, device, set_, campaign_id, None, job, short)
    if made.promise:
        raise UserError(
            f"{chosen} needs several nodes: start its DAG; `trainbench plan --suite {chosen}` says what it takes"
        )
    store = base.open_store(store_url)

    from trainbench.results.store_files import StoreError

    # Before the imports of what judges and records, which take longer than all before.
    typer.echo(planned.opening(made, store.root), err=True)
    kept, campaign = planned.Kept(campaign_id, len(made.specs)), None
    try:
        from trainbench import pipeline
        from trainbench.cli.run import run_campaign, store_plan

        # SystemExit, not sudden death: the pod that is running is stopped on the way out.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        history = base.open_history(store_url)
        store_plan(made, store)
        campaign = run_campaign(made, settings, store, history, base.console(stderr=True), kept)
        files = pipeline.report(campaign, store)
        history.record(campaign)
    except (KeyboardInterrupt, SystemExit) as stop:
        base.print_error(kept.sentence)
        raise typer.Exit(128 + (signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)) from None
    except StoreError:  # store or history may be full, read-only or locked; what was measured is told all the same
        if campaign:
            _conclude(campaign, {}, ())
        elif kept.num_kept:
            base.print_error(kept.sentence)
        raise
    return _conclude(campaign, files, ())


@app.command()
def check(
    source: Source,
    set_: Annotated[list[str] | None, base.set_option("Another limit or price")] = None,
    store_url: StoreUrl = None,
) -> ExitCode:
    """Judge stored results again, also with other limits or prices. Writes no report."""
    campaign, broken = _judged_again(source, base.open_store(store_url), planned.changes(set_))
    return _conclude(campaign, {}, broken)


@app.command()
def report(
    source: Source,
    output: Annotated[
        str | None, typer.Option(help="Store to write to, a folder or URL. Default: the store that is read.")
    ] = None,
    store_url: StoreUrl = None,
) -> ExitCode:
    """Write the reports again, from a stored campaign or from result files, another program's flat ones too."""
    from trainbench.exchange.flat_summary import flat_summary
    from trainbench.prices.price_tables import load_prices
    from trainbench.results.store_files import is_folder

    if is_folder(source) and (flat := flat_summary(Path(source), load_prices(base.read_settings().prices))):
        paths = {name: Path(output or source) / "summary" / name for name in flat.files}
        for name, path in paths.items():
            base.write_file(path, flat.files[name])
        base.print_broken(flat.broken)
        files = {name: str(path) for name, path in paths.items()}
        base.answer({"campaign_id": None, "files": files}, *files.values())
        return ExitCode.RED if flat.broken else ExitCode.OK
    store = base.open_store(store_url)
    campaign, broken = _judged_again(source, store, {}, for_report=True)

    from trainbench import pipeline
    from trainbench.reporting import verdict_text

    with base.console(stderr=True).status(f"writing the report of {count(len(campaign.results), 'run')}"):
        written = pipeline.report(campaign, base.open_store(output) if output else store)
    base.print_broken(broken)
    if not base.print_json({"campaign_id": campaign.campaign_id, "files": written}):
        base.show(verdict_text.verdict(campaign), stderr=True)
        base.show(*written.values())
    return ExitCode.RED if broken else ExitCode.OK


def _judged_again(
    source: str, store: Store, changes: Mapping[str, Any], for_report: bool = False
) -> tuple[Campaign, tuple[BrokenFile, ...]]:
    from trainbench.cli.stored_plan import open_stored

    with base.progress("files read") as on_progress:
        stored = open_stored(source, store, changes, on_progress)
    if for_report and stored.campaign:
        return stored.campaign, stored.broken
    if stored.is_of_dag:
        base.print_error(
            f"{source} has no verdict: its DAG run is at work or ended early; here a run without result failed"
        )
    elif stored.num_absent:
        base.print_error(f"{stored.unfinished}, and this verdict is of these alone")

    from trainbench import pipeline
    from trainbench.history.history import open_history
    from trainbench.judging.levels import load_levels

    levels = load_levels(stored.measured.plan.params.levels, store.read_levels())
    measured = replace(stored.measured, levels=levels)
    if stored.is_ours:
        measured = replace(measured, history=open_history(store=store))
    with base.console(stderr=True).status(f"judging {count(len(measured.results), 'run')}"):
        judged = replace(pipeline.judge(measured), reruns=stored.reruns)
        return pipeline.assess(judged), stored.broken


def _conclude(campaign: Campaign, files: Mapping[str, str], broken: Sequence[BrokenFile]) -> ExitCode:
    """Print the verdict; its exit code."""
    from trainbench.reporting.verdict_text import node_rows

    base.print_broken(broken)
    if not base.print_json(campaign.brief | {"nodes": node_rows(campaign), "files": files}):
        from trainbench.reporting.terminal import verdict_table

        base.console().print(verdict_table(campaign))
        base.show(f"campaign: {campaign.campaign_id}", *files.values())
    return exit_code(campaign, broken)


def exit_code(campaign: Campaign, broken: Sequence[BrokenFile] = ()) -> ExitCode:
    """Red first; then a fleet of which half has become slower; then one in which no node was checked."""
    from trainbench.reporting.verdict_text import is_red

    if broken or is_red(campaign):
        return ExitCode.RED
    if not campaign.judges_nodes:
        return ExitCode.OK
    nodes = campaign.node_states
    changed = sum(node.why is Why.CHANGED for node in nodes)
    if changed and 2 * changed >= len(nodes):
        return ExitCode.CHANGED
    is_checked = any(node.state is not State.NOT_CHECKED and node.why is not Why.ABSENT for node in nodes)
    return ExitCode.OK if is_checked else ExitCode.NOT_JUDGED
