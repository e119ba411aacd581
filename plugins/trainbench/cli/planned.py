"""The plan of a command: its parameters, a training command of one's own, the GPUs that it counts on, its estimate,
and how it is printed; and what is kept of a campaign that is stopped. It imports nothing large, because
`trainbench run` has it before its first line.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_image.contract.frozen import ContractError
from bench_image.contract.options import Strategy
from bench_image.contract.own_job import AUTO_PROFILE, choose_profiles, parse_profiles
from bench_image.contract.work import Device
from trainbench.cli import base
from trainbench.core.formats import NA, count, duration, figure, listing, usd
from trainbench.core.user_error import UserError
from trainbench.params.campaign_kind import SUITES, CampaignKind, Suite
from trainbench.params.refusals import ParamsError

if TYPE_CHECKING:
    from bench_image.contract.spec import RunSpec
    from trainbench.cost.job_estimates import MemoryFit
    from trainbench.cost.plan_estimate import PlanEstimate, RunKind
    from trainbench.planning.nodes import GpuNode
    from trainbench.planning.plan import Plan
    from trainbench.settings.campaign_file import CampaignFile
    from trainbench.settings.environment import Settings


def campaign_name(name: str, at: datetime) -> str:
    """Id of a campaign of the command line: its suite or its file's name, and the millisecond."""
    from trainbench.planning.plan import identifier

    return f"{identifier(name, 100)}-{at:%Y%m%d-%H%M%S}-{at.microsecond // 1000:03d}"


def make_plan(
    suite: Suite,
    settings: Settings,
    nodes: str | None,
    device: Device | None,
    set_: Sequence[str] | None,
    campaign_id: str,
    gpus: GpuNode | None = None,
    job: Mapping[str, Any] | None = None,
    short: Mapping[str, Any] | None = None,
    *,
    starts_here: bool = True,
) -> Plan:
    """The plan on this machine's GPUs, or on `gpus`. `job`: parameters of a campaign file, and of a command of the
    user's own, which all others replace; `short`: those with an option of their own. `starts_here`: False where the
    nodes are those of a cluster, on which somebody else starts the pods. Raises ParamsError and PlanError.
    """
    from trainbench.cluster.local_nodes import local_fleet, visible_gpus
    from trainbench.params.campaign_params import refuse_other_names
    from trainbench.params.model_reference import with_configuration
    from trainbench.planning.planners import PLANNERS

    planner = PLANNERS[SUITES[suite]]
    set_values = changes(set_)
    given = {name: value for name, value in (short or {}).items() if value is not None}
    for option, is_twice in (
        ("nodes", nodes is not None),
        ("device", device is not None),
        *dict.fromkeys(given, True).items(),
    ):
        if is_twice and option in set_values:
            raise ParamsError(f"--{option} and --set {option}=... give two values: leave one of them out")
    chosen = {"device": device} if device else {}
    values: dict[str, Any] = {"device": Device.CPU} | dict(job or {}) | chosen | given | set_values
    refuse_other_names(values, SUITES[suite])
    if nodes is not None:
        values["nodes"] = names(nodes)
    is_cuda = values["device"] == Device.CUDA
    seen = gpus or (visible_gpus() if is_cuda else None)
    is_scaling = planner.kind is CampaignKind.STRATEGIES
    if is_scaling and not is_cuda:
        values = {"gpus_per_node": 2} | values  # 1 and 2 processes
    elif (
        is_scaling and seen and (num_gpus := seen.num_gpus)
    ):  # 1, 2, 4 ... and all of this machine's GPUs, or of all nodes
        most = num_gpus * max(1, len(values.get("nodes") or ()))
        sizes = {1, 2, most, *(2**power for power in range(1, 7) if 2**power <= most)}
        values = {"world_sizes": sorted(sizes), "gpus_per_node": num_gpus} | values
    params = with_configuration(planner.params(values, locally=not is_cuda))
    fleet = local_fleet(settings, params, seen)
    if is_scaling and not (params.nodes and not starts_here):
        if params.nodes and len(params.nodes) > 1:
            raise ParamsError(
                f"nodes is {', '.join(params.nodes)}: `run` starts processes of this machine alone, so name one node. "
                "Over several nodes the DAG strategy_scaling runs, or without Airflow the pods of `trainbench plan "
                "--manifests`, which kubectl applies"
            )
        fleet = fleet.model_copy(update={"nodes": fleet.nodes[:1]})  # further names would stand for the same GPUs
    return planner.make(params, fleet, campaign_id)


def assumed_gpus(name: str, num_gpus: int | None) -> GpuNode:
    """A machine that is only planned for; with as many GPUs as here, or one, where no number is given. Raises
    QuantityError.
    """
    from trainbench.cluster.local_nodes import machine_name, visible_gpus
    from trainbench.cost.gpu_fit import meant_gpu
    from trainbench.cost.job_estimates import gpu_memory_bytes
    from trainbench.planning.nodes import GpuNode

    if num_gpus is None:
        here = visible_gpus()
        num_gpus = here.num_gpus if here else 1
    meant = meant_gpu(name)
    return GpuNode(name=machine_name(), num_gpus=num_gpus, gpu_product=meant, gpu_memory_bytes=gpu_memory_bytes(meant))


def changes(set_: Sequence[str] | None) -> dict[str, Any]:
    """Parameter -> value, of options as NAME=VALUE; lists are split at commas. Raises ParamsError."""
    from trainbench.params.campaign_params import form

    lists = {name for name, field in form().items() if "array" in field["type"]}
    given = base.named_values(set_, example="rounds=3").items()
    return {name: names(value) if name in lists else value or None for name, value in given}


def refuse_gangs_beside_others(plan: Plan) -> None:
    """Raise ParamsError where the pods of a gang over several nodes would be applied together with other pods: each may
    hold some of the nodes, and the gang's ranks wait for each other for two minutes only.
    """
    gangs = [spec.placement for spec in plan.specs if spec.placement.nodes > 1]
    if gangs and len(plan.specs) > 1:
        strategy = "" if gangs[0].strategy is Strategy.OWN else f"--set strategies={gangs[0].strategy} "
        one = f"{strategy}--set world_sizes={gangs[0].world_size}"
        raise ParamsError(
            f"--manifests prints a gang over nodes alone, and this plan has {count(len(plan.specs), 'run')}: applied "
            f"together they would wait for each other's nodes. Choose one, such as {one}; apply the next when its pods "
            "have ended"
        )


def opening(plan: Plan, root: object) -> str:
    """The first line of a run: what starts, for how long at most, and where its results go."""
    limit = duration(sum(spec.timeout_s for spec in plan.specs))
    return f"{plan.campaign_id}: {count(len(plan.specs), 'run')}, at most {limit}; into {root}"


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def estimate_of(plan: Plan, settings: Settings) -> PlanEstimate:
    """By what the same work took here before, else by the formula. Raises PriceError."""
    from trainbench.cost.plan_estimate import estimate_plan
    from trainbench.history.history import existing_history
    from trainbench.prices.price_tables import load_prices
    from trainbench.results.store_files import StoreError

    try:
        history = existing_history(settings.history_url, base.open_store())
        past = history.past_runs(plan.nodes_by_group.keys()) if history else {}
    except StoreError as error:
        base.print_error(f"{error}; durations are computed by the formula")
        past = {}
    return estimate_plan(plan, load_prices(settings.prices), past)


def print_plan(plan: Plan, estimate: PlanEstimate) -> None:
    from trainbench.core.tables import integer, make_table, number, text
    from trainbench.figure_catalogue.run_figures import GPU_HOURS
    from trainbench.planning.plan import unknown_gpus

    def node(spec: RunSpec) -> str:
        return (
            f"{spec.identity.node} (drill: {spec.drill.slowdown_pct:g} % slower)" if spec.drill else spec.identity.node
        )

    def source(kind: RunKind) -> str:
        return count(kind.num_past_runs, "past run") if kind.num_past_runs else "formula" if kind.run_s else NA

    def memory(fit: MemoryFit | None) -> str:
        return f"{figure(fit.need_gb, 3)} of {figure(fit.gpu_gb, 3)}" if fit else NA

    runs = make_table(
        list(enumerate(plan.specs, start=1)),
        (
            integer("#", lambda row: row[0]),
            text("node", lambda row: node(row[1])),
            text(
                "work" if plan.labels else "strategy",
                lambda row: plan.labels.get(row[1].identity.group_id, row[1].placement.strategy.value),
            ),
            integer("GPUs" if plan.gpus_per_node else "processes", lambda row: row[1].placement.gpus_per_node),
            integer("round", lambda row: row[1].identity.round),
            text("run", lambda row: row[1].identity.run_id),
        ),
        title=f"{count(len(plan.specs), 'run')} of {listing(dict.fromkeys(spec.work.model for spec in plan.specs))}",
    )
    estimated = make_table(
        estimate.kinds,
        (
            text("work", lambda kind: kind.work),
            integer("GPUs", lambda kind: kind.num_gpus),
            integer("runs", lambda kind: kind.num_runs),
            number("a run takes", lambda kind: kind.run_s, duration),
            text("by", source),
            GPU_HOURS.column(lambda kind: kind.gpu_hours),
            number("on demand", lambda kind: kind.on_demand_usd, usd),
            number("spot", lambda kind: kind.spot_usd, usd),
            text("GB of a GPU", lambda kind: memory(kind.memory), is_number=True),
        ),
        title="Estimated before anything starts",
    )
    unknown, skipped = unknown_gpus(plan), [f"skipped {skip.what}: {skip.reason}" for skip in plan.skipped]
    # The runs of a search are those of its first round.
    lines = (plan.promise,) if plan.promise else (*estimate.notes, headline(estimate))
    tables = (runs, estimated) if plan.gpus_per_node else (runs,)
    base.show(*tables, *([unknown] if unknown else []), *skipped, *lines)


def headline(estimate: PlanEstimate) -> str:
    """Duration, GPU-hours and cost in one sentence."""
    runs, limit = count(estimate.num_runs, "run"), duration(estimate.limit_s)
    if estimate.total_s is None:
        return f"{runs}: at most {limit}, by the time limits of the runs (timeout_s)."
    parts = [f"{runs}: about {duration(estimate.total_s)} (at most {limit}, by timeout_s)"]
    if estimate.longest_s and estimate.longest_s < estimate.total_s:
        parts.append(f"{duration(estimate.longest_s)} with nodes side by side, as the DAG runs them")
    if estimate.gpu_hours:
        parts.append(f"{figure(estimate.gpu_hours, 2)} GPU-hours")
    costs = ((estimate.on_demand_usd, "on demand"), (estimate.spot_usd, "on spot"))
    return f"{', '.join((*parts, *(f'{usd(cost)} {how}' for cost, how in costs if cost)))}."


@dataclass
class Kept:
    """The runs whose results are stored so far, and those that are under way."""

    campaign_id: str
    num_planned: int
    num_kept: int = 0
    running: str | None = None

    @property
    def sentence(self) -> str:
        ended = f" {self.running} ended without a result." if self.running else ""
        again = "The same command starts again from the first run."
        if not self.num_kept:
            return f"stopped before a run had a result: no result is kept.{ended} {again}"
        return (
            f"stopped after {self.num_kept} of {count(self.num_planned, 'run')}: their results are kept, no report is "
            f"written.{ended} `trainbench check {self.campaign_id}` judges what is kept, `trainbench report "
            f"{self.campaign_id}` writes its report. {again}"
        )


MAX_FILE_BYTES = 16_000_000  # of a script or a configuration; data and weights are larger


def job_values(
    command: Sequence[str] | None,
    environment: Sequence[str] | None,
    profile: str | None,
    log_profiles: Path | None,
    campaign: CampaignFile | None = None,
) -> dict[str, Any]:
    """Parameter -> value: those of the campaign file, and from the words after `--` and the options that belong to
    them, which replace those of its job.

    `log_profiles`: the installation's own file. Raises UserError.
    """
    values = dict(campaign.values) if campaign else {}
    words = command or shlex.split(values.get("command") or "")
    if not words:
        for option, value in (("--env", environment), ("--profile", profile)):
            if value:
                raise UserError(
                    f"{option} belongs to a command of yours: write it after '--', such as -- python train.py"
                )
        return values
    if words[0] in SUITES:
        raise UserError(f"{words[0]} is a suite, not a command of yours: write --suite {words[0]}")
    if command:
        values = {name: value for name, value in values.items() if name not in ("job_version", "job_folder")}
    name = profile or values.get("log_profile") or AUTO_PROFILE
    try:
        text = base.read_file(log_profiles, MAX_FILE_BYTES).decode(errors="replace") if log_profiles else None
        choose_profiles(name, parse_profiles(text, str(log_profiles)) if text else ())
    except ContractError as error:
        raise UserError(str(error)) from None
    folder = Path(values.get("job_folder") or Path.cwd())
    variables = base.named_values(values.get("job_environment"))
    variables |= base.named_values(environment, "--env", "NCCL_DEBUG=INFO")
    return values | {
        "command": shlex.join(words),
        "job_environment": [f"{name}={value}" for name, value in variables.items()],
        "job_version": values.get("job_version") or version_of(words, folder),
        "job_folder": str(folder),
        "log_profile": name,
    }


def version_of(command: Sequence[str], folder: Path) -> str | None:
    """A checksum of the files that the command names, modules by `-m` among them; None for none. The program itself
    counts where it lies in this folder.
    """
    names: list[str] = []
    is_ours = (folder / command[0]).resolve().is_relative_to(folder.resolve())
    for before, word in pairwise(("", *command) if is_ours else command):
        module = word.replace(".", "/")
        names += [f"{module}.py", f"{module}/__main__.py"] if before == "-m" else [word, word.partition("=")[2]]
    files = {}
    for name in filter(None, names):
        path = folder / name
        try:
            if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
                files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        except (OSError, ValueError):  # no path, or none of ours
            continue
    if not files:
        return None
    digest = hashlib.sha256("".join(f"{name} {files[name]}\n" for name in sorted(files)).encode()).hexdigest()
    return f"{digest[:12]} of {', '.join(sorted(files))}"[:200]


def device_of(values: dict[str, Any], device: Device | None) -> Device | None:
    """The chosen one, else that of the file; a command of the user's own takes the machine's GPUs, where it has any."""
    from trainbench.cluster.local_nodes import visible_gpus

    if device or "command" not in values or "device" in values:
        return device
    return Device.CUDA if visible_gpus() else Device.CPU
