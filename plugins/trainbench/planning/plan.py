"""Makes the plan from the params: the runs, their order, and the skipped ones with their reasons.

One planner for all kinds of campaigns. What varies is a `Planned` work: a strategy, a configuration, a model with a
recipe, or a number of GPUs; each runs on every node, or as one gang on several.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.flops import lora_targets
from bench_image.contract.frozen import Frozen
from bench_image.contract.links import LinkSweep
from bench_image.contract.memory_estimate import memory_need_bytes
from bench_image.contract.model_shapes import MODELS, EncoderDecoderShape
from bench_image.contract.options import SINGLE_GPU, Recipe, Strategy
from bench_image.contract.spec import (
    WHOLE_GPU,
    Drill,
    Identity,
    Measurement,
    Placement,
    RunSpec,
    is_slice,
)
from bench_image.contract.work import AUTO, PRESET_SETTINGS, Device, DiskData, Work, WorkSettings
from trainbench.core.formats import count, duration, listing
from trainbench.core.grouping import grouped
from trainbench.core.user_error import UserError
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.params.variants import BASELINE, DISK, VARIANTS
from trainbench.planning.link_search import MOST_ROUNDS, GroupTest, LinkSearch, bound_of, groups_of
from trainbench.planning.nodes import AbsentNode, Fleet, GpuNode, named_nodes, nodes_with_commonest_gpu

RERUN_ROUNDS = 2
NO_JOINED_SLICES = "CUDA and NCCL join no MIG slices"


class PlanError(UserError, ValueError):
    """No run is possible; the message has the cause and the remedy."""


SKIPPED, NO_RESULT = "skipped", "no result yet"  # the plan left it out; its campaign has not ended, or was stopped


class Skipped(Frozen):
    """A planned combination without a result, with the reason. `nodes`: its intended nodes; empty: no specific node.

    `label`: its name in the plan. Where other work of the plan is equal, `group_id` is that work's, whose figures hold
    here too.
    """

    what: str
    reason: str
    state: str = SKIPPED
    strategy: Strategy | None = None
    gpus_per_node: int | None = None
    nodes: tuple[str, ...] = ()
    group_id: str | None = None  # of the skipped runs; None: their spec cannot be made
    label: str | None = None
    model: str | None = None  # of a survey; None: all of its models
    recipe: Recipe | None = None  # of a survey; None: all of its recipes
    gpu_product: str | None = None  # of the nodes; None: unknown


class Plan(Frozen):
    """The planned runs. `specs` are ordered round by round, so that a node's rounds are as far apart as possible.

    `absent`: GPU nodes of the cluster without a run; empty when the form names the nodes.
    """

    campaign_id: str
    params: BenchmarkParams
    nodes: tuple[str, ...]
    specs: tuple[RunSpec, ...]
    skipped: tuple[Skipped, ...]
    campaign_kind: CampaignKind = CampaignKind.NODES
    labels: Mapping[str, str] = {}  # group id -> its work's name in the form
    known: tuple[GpuNode, ...] = ()
    absent: tuple[AbsentNode, ...] = ()
    promise: str | None = None  # of a search whose later runs follow from the first: what it takes at most
    has_reruns: bool = True  # False: for result files, judged without re-runs

    @property
    def judges_nodes(self) -> bool:
        return self.campaign_kind is CampaignKind.NODES

    @property
    def nodes_by_group(self) -> Mapping[str, tuple[str, ...]]:
        """Group id -> the nodes that run its work, in the plan's order."""
        planned: dict[str, dict[str, None]] = {}
        for spec in self.specs:
            planned.setdefault(spec.identity.group_id, {})[spec.identity.node] = None
        return {group_id: tuple(nodes) for group_id, nodes in planned.items()}

    @property
    def gpus_per_node(self) -> tuple[int, ...]:
        """The numbers of GPUs per node that runs use, ascending; empty without GPUs."""
        return tuple(sorted({spec.placement.gpus_per_node for spec in self.specs if spec.work.device is Device.CUDA}))

    @property
    def title(self) -> str:
        """A title from the settings that all runs share, and the values of those that differ."""
        specs = self.specs
        models, recipes, shapes, strategies = (
            list(dict.fromkeys(values))
            for values in (
                (spec.work.model for spec in specs),
                (spec.work.recipe.value for spec in specs if not spec.work.own_job),
                (spec.work.size for spec in specs),
                (spec.placement.strategy.value for spec in specs),
            )
        )
        work = " ".join(map(listing, filter(None, (models, recipes))))
        if len(shapes) == 1 and shapes[0]:
            work += f", {shapes[0]}"
        if strategies not in ([Strategy.SINGLE], [Strategy.OWN]):
            work += f", {listing(strategies)}"
        about = {CampaignKind.NOISE: "noise floor: ", CampaignKind.INTERCONNECT: "interconnect: "}
        prefix = about.get(self.campaign_kind, "")
        gpus = self.gpus_per_node
        of_each = f", {listing(map(str, gpus))} {'GPU' if gpus == (1,) else 'GPUs'} of each" if gpus else ""
        return f"{prefix}{work}, on {count(len(self.nodes), 'node')}{of_each}"


class ScalingCell(Frozen):
    """One strategy at one number of GPUs: a task group of the DAG, a gang of the plan."""

    strategy: Strategy
    world_size: int

    @property
    def name(self) -> str:
        """The name of the task group, valid in Airflow."""
        return f"{self.strategy.value}_{self.world_size}_gpu"

    @property
    def title(self) -> str:
        return self.titled("GPU")

    def titled(self, noun: str) -> str:
        """ "ddp on 4 GPUs". `noun`: "process" on a CPU."""
        return f"{self.strategy} on {count(self.world_size, noun)}"


def scaling_cells(world_sizes: Sequence[int]) -> tuple[ScalingCell, ...]:
    """The meaningful cells, smallest first: `single` on one GPU, gangs on several, a command of the user's own on any
    number; `independent` shares no work.
    """
    return tuple(
        ScalingCell(strategy=strategy, world_size=size)
        for size in sorted(set(world_sizes))
        for strategy in Strategy
        if strategy is Strategy.OWN
        or (strategy is not Strategy.INDEPENDENT and (strategy is Strategy.SINGLE) == (size == 1))
    )


def refuse_sizes_without_tasks(built: Sequence[int], params: BenchmarkParams) -> None:
    """Raise PlanError for numbers of GPUs that the DAG has no task group for; `built`: those that it has."""
    if missing := sorted(set(params.world_sizes) - set(built)):
        sizes = listing(map(str, sorted(built)), most=len(built))
        raise PlanError(
            f"world_sizes has {listing(map(str, missing))}: this DAG has tasks for {sizes} GPUs; choose from these, or "
            "set TRAINBENCH_WORLD_SIZES and let Airflow read its DAGs again"
        )


class Planned(NamedTuple):
    """What runs on each node, or as a gang. `num_gpus` None: all of the node. `about`: fields of its skipped runs."""

    what: str
    params: BenchmarkParams
    strategy: Strategy
    num_gpus: int | None
    about: Mapping[str, Any]


Draft = tuple[Planned, GpuNode, int]  # a run before its round, with its number of GPUs


def make_plan(params: BenchmarkParams, fleet: Fleet, campaign_id: str, kind: CampaignKind = CampaignKind.NODES) -> Plan:
    """The plan: every work on every node, round by round, so that a drift of the machines affects all equally.

    - Nodes: each strategy on all GPUs of each node, unless `params` limit them.
    - Strategies: one gang for each strategy and number of GPUs, always on the first nodes, which have the same GPU. It
      takes at most `gpus_per_node` GPUs of a node, and no more than each has: 4 GPUs are one pod, or 4 pods on 4 nodes.
    - Configurations: A B C, A B C on one node unless more are named; each further node repeats the comparison.
    - Hardware: each model and recipe on the first `nodes_per_gpu_type` nodes of each kind of GPU, or on all that are
      named, by each strategy at each number of GPUs. A run takes GPUs of one node.

    The fleet's nodes are used where `params` name none. What is impossible or does not fit is skipped with the reason.
    Raises PlanError, also where nothing is left.
    """
    nodes, works = _nodes(params, fleet, kind), _works(params, kind)
    labels: dict[str, str] = {}  # group id -> label
    skipped = list(_sizes_without_strategy(params, kind))
    promise = None
    if kind is CampaignKind.STRATEGIES:
        specs = _gangs(works, nodes, params, campaign_id, skipped)
        used = {name for spec in specs for name in spec.identity.nodes}
        nodes = tuple(node for node in nodes if node.name in used)
    elif kind is CampaignKind.INTERCONNECT:
        links = Interconnect(params, nodes, campaign_id)
        promise, specs = links.promise, [*links.specs(links.search().due(), round_=1)]
        skipped += _of_other_gpus(fleet, nodes, params)
    else:
        drafts = [draft for work in works for draft in _on_nodes(work, nodes, labels, skipped)]
        if kind is CampaignKind.CONFIGURATIONS:  # in turn on a node, before the next node
            drafts.sort(key=lambda draft: nodes.index(draft[1]))
        specs = [
            spec_of(of.params, of.strategy, [node.name], gpus, campaign_id, round_, node.gpu_resource)
            for round_ in range(1, params.rounds + 1)
            for of, node, gpus in drafts
        ]
    if not specs:
        reasons = "; ".join(f"{skip.what}: {skip.reason}" for skip in skipped)
        raise PlanError(f"nothing can run: {reasons}")
    sees_all = kind in (CampaignKind.NODES, CampaignKind.HARDWARE, CampaignKind.INTERCONNECT) and not params.nodes
    if kind is CampaignKind.HARDWARE and sees_all:
        skipped += _without_nodes(fleet, nodes)
    return Plan(
        campaign_id=campaign_id,
        params=params,
        nodes=tuple(node.name for node in nodes),
        specs=tuple(specs),
        skipped=tuple(skipped),
        campaign_kind=CampaignKind.NOISE if params.noise_floor and kind is CampaignKind.NODES else kind,
        labels=labels,
        promise=promise,
        known=nodes,
        absent=fleet.absent if sees_all else (),
    )


def _nodes(params: BenchmarkParams, fleet: Fleet, kind: CampaignKind) -> tuple[GpuNode, ...]:
    """The nodes that `params` name, else those of the fleet that this kind takes. Raises PlanError."""
    nodes = chosen_nodes(params, fleet)
    names = [node.name for node in nodes]
    match kind:
        case CampaignKind.NODES if params.drill_node and params.drill_node not in names:
            raise PlanError(
                f"drill_node '{params.drill_node}' is not among the nodes {', '.join(names)}: choose one of them"
            )
        case CampaignKind.HARDWARE:
            kinds = grouped((kind_of(node.gpu_product, params.work.device), node) for node in nodes)
            most = None if params.nodes else params.nodes_per_gpu_type
            return tuple(node for of_kind in kinds.values() for node in of_kind[:most])
        case CampaignKind.INTERCONNECT if len(nodes) < 2:
            raise PlanError(
                f"only {listing(names)} can run: a link needs two nodes; name more in the parameter 'nodes'"
            )
        case CampaignKind.CONFIGURATIONS | CampaignKind.STRATEGIES | CampaignKind.INTERCONNECT:
            if not params.nodes:
                nodes = nodes[:1] if kind is CampaignKind.CONFIGURATIONS else nodes_with_commonest_gpu(nodes)
            resources = sorted({node.gpu_resource for node in nodes})
            if len(resources) > 1:
                raise PlanError(
                    f"these nodes have different kinds of GPU ({listing(resources)}), which are not compared: name "
                    "nodes of one kind in the parameter 'nodes'"
                )
    return nodes


def _works(params: BenchmarkParams, kind: CampaignKind) -> Iterator[Planned]:
    chosen = (Strategy.OWN,) if params.work.own_job.command else params.strategies
    cells = [cell for cell in scaling_cells(params.world_sizes) if cell.strategy in chosen]
    noun = params.work.device.rank_noun
    match kind:
        case CampaignKind.STRATEGIES:
            for cell in cells:
                yield Planned(cell.titled(noun), params, cell.strategy, cell.world_size, {"strategy": cell.strategy})
        case CampaignKind.CONFIGURATIONS:
            yield Planned(BASELINE, params, Strategy.SINGLE, 1, {"label": BASELINE})
            for name, variant in VARIANTS.items():  # in the order of their table
                if name in params.variants:
                    folder = {"data_folder": params.variant_data_folder} if name == DISK else {}
                    changed = params.changed(**variant.changes, **folder)
                    yield Planned(name, changed, Strategy.SINGLE, 1, {"label": name})
            for name, changes in params.own_variants.items():
                yield Planned(name, params.changed(**changes), Strategy.SINGLE, 1, {"label": name})
        case CampaignKind.HARDWARE:
            for model in params.models:
                for recipe in recipes_of(model, params.recipes):
                    of_work = params.changed(model=model, dimensions=None, recipe=recipe)
                    yield from (_survey_work(of_work, model, recipe, cell) for cell in cells)
        case _:
            yield from _node_works(params)


def _sizes_without_strategy(params: BenchmarkParams, kind: CampaignKind) -> Iterator[Skipped]:
    """Numbers of GPUs of a comparison on which none of its strategies runs: one GPU without `single`, several with
    nothing else.
    """
    if kind not in (CampaignKind.STRATEGIES, CampaignKind.HARDWARE) or params.work.own_job.command:
        return
    cells = [cell for cell in scaling_cells(params.world_sizes) if cell.strategy is not Strategy.OWN]
    for size in sorted({cell.world_size for cell in cells}):
        able = [cell.strategy for cell in cells if cell.world_size == size]
        if not set(able) & set(params.strategies):
            named, noun = listing(params.strategies), params.work.device.rank_noun
            yield Skipped(
                what=count(size, noun),
                reason=f"{named} {'does' if len(params.strategies) == 1 else 'do'} not run on {count(size, noun)}: add "
                f"{'one of ' if len(able) > 1 else ''}{listing(able)} to strategies",
                gpus_per_node=size,
            )


def _node_works(params: BenchmarkParams) -> Iterator[Planned]:
    """Each strategy; of a command of the user's own, which shares its work as it likes, the command."""
    if params.work.own_job.command:
        name = params.work.own_job.name
        yield Planned(name, params, Strategy.OWN, None, {"label": name})
        return
    for strategy in dict.fromkeys(params.strategies):
        yield Planned(f"strategy {strategy}", params, strategy, None, {"strategy": strategy})


def _survey_work(params: BenchmarkParams, model: str, recipe: Recipe, cell: ScalingCell) -> Planned:
    """ "gpt2 full"; on several GPUs "gpt2 full, ddp on 2 GPUs"."""
    gang = f", {cell.titled(params.work.device.rank_noun)}" if cell.world_size > 1 else ""
    label = f"{model} {recipe}{gang}"
    about: dict[str, Any] = {"label": label, "model": model, "recipe": recipe}
    about |= {"strategy": cell.strategy, "gpus_per_node": cell.world_size}
    return Planned(label, params, cell.strategy, cell.world_size, about)


def recipes_of(model: str, recipes: Sequence[Recipe]) -> tuple[Recipe, ...]:
    """The recipes for a model. An encoder-decoder is trained from scratch, so it has no adapters."""
    return (Recipe.FULL,) if isinstance(MODELS[model], EncoderDecoderShape) else tuple(recipes)


def _on_nodes(
    work: Planned, nodes: Sequence[GpuNode], labels: dict[str, str], skipped: list[Skipped]
) -> Iterator[Draft]:
    """The work's runs on the nodes that can run it. `labels` gets those of its group ids, `skipped` what cannot run:
    of a survey once for each kind of GPU and reason, else for each reason.
    """
    params, label = work.params, work.about.get("label")
    if reason := impossible_reason(work.strategy, params):
        everywhere = () if label else tuple(node.name for node in nodes)
        skipped.append(Skipped(what=work.what, reason=reason, nodes=everywhere, **work.about))
        return
    specs: dict[tuple[int, str], RunSpec] = {}
    unable: dict[tuple[str, str | None, int, str | None], list[GpuNode]] = {}
    for node in nodes:
        gpus = work.num_gpus or gpus_of(node, work.strategy, params)
        kind = kind_of(node.gpu_product, params.work.device) if "model" in work.about else None
        if work.num_gpus is None and work.strategy not in SINGLE_GPU and gpus < 2:
            # Beside `independent`, `ddp` measures links, of which one GPU has none.
            if work.strategy is not Strategy.DDP or Strategy.INDEPENDENT not in params.strategies:
                unable.setdefault((_too_few(node, params), None, gpus, kind), []).append(node)
            continue
        place = (gpus, node.gpu_resource)
        if place not in specs:
            spec = spec_of(params, work.strategy, [node.name], gpus, "draft", gpu_resource=node.gpu_resource)
            group_id = spec.identity.group_id
            if (twin := labels.get(group_id, label)) != label:
                reason = f"with these parameters it does the same work as '{twin}', whose runs count for both"
                skipped.append(Skipped(what=work.what, reason=reason, group_id=group_id, **work.about))
                return
            specs[place] = spec
            if label:
                labels[group_id] = label
        if reason := impossible_on(node, specs[place], params.force):
            unable.setdefault((reason, specs[place].identity.group_id, gpus, kind), []).append(node)
        else:
            yield work, node, gpus
    for (reason, unfit, gpus, kind), of_reason in unable.items():
        where = kind or ("" if len(of_reason) == len(nodes) else listing(node.name for node in of_reason))
        products = {node.gpu_product for node in of_reason}
        about = {"strategy": work.strategy, "gpus_per_node": gpus, **work.about}
        skipped.append(
            Skipped(
                what=f"{work.what} on {where}" if where else work.what,
                reason=reason,
                nodes=tuple(node.name for node in of_reason),
                group_id=unfit,
                gpu_product=products.pop() if len(products) == 1 else None,
                **about,
            )
        )


def _gangs(
    works: Iterator[Planned],
    nodes: Sequence[GpuNode],
    params: BenchmarkParams,
    campaign_id: str,
    skipped: list[Skipped],
) -> list[RunSpec]:
    specs = []
    most = _gpus_of_all(nodes, params)
    noun = params.work.device.rank_noun
    for work in works:
        size = work.num_gpus or 1
        gpus = min(size, most)
        used = nodes[: size // gpus]
        if size % gpus:
            reason: str | None = (
                f"{count(size, noun)} cannot be spread evenly with {gpus} on each node: choose another gpus_per_node"
            )
        elif size // gpus > len(nodes):
            there = "there is 1" if len(nodes) == 1 else f"there are {len(nodes)} of one kind"
            has_more = all(node.num_gpus_per_run is None or node.num_gpus_per_run > gpus for node in nodes)
            raised = "raise gpus_per_node, or " if has_more else ""
            reason = (
                f"needs {size // gpus} nodes with {count(gpus, noun)} each, {there}: "
                f"{raised}leave {size} out of world_sizes"
            )
        else:
            reason = impossible_reason(work.strategy, params)
        if not reason:
            names, resource = [node.name for node in used], used[0].gpu_resource
            spec = spec_of(params, work.strategy, names, gpus, campaign_id, gpu_resource=resource)
            reason = next(filter(None, (impossible_on(node, spec, params.force) for node in used)), None)
        if reason:
            skipped.append(Skipped(what=work.what, reason=reason, gpus_per_node=gpus, **work.about))
        else:
            specs.append(spec)
    return specs


def gpus_of(node: GpuNode, strategy: Strategy, params: BenchmarkParams) -> int:
    """The number of GPUs that a run uses on the node: all usable ones, or fewer by `params`; one where neither is
    known. Without GPUs: the number of processes.
    """
    if strategy is Strategy.SINGLE:
        return 1
    there = node.num_gpus_per_run if params.work.device is Device.CUDA else None
    return max(1, min((number for number in (params.gpus_per_node, there) if number is not None), default=1))


def _gpus_of_all(nodes: Sequence[GpuNode], params: BenchmarkParams) -> int:
    """The number of GPUs that a gang takes of each of these nodes."""
    there = [node.num_gpus_per_run for node in nodes if node.num_gpus_per_run]
    return min([*filter(None, [params.gpus_per_node]), *there], default=1)


def _too_few(node: GpuNode, params: BenchmarkParams) -> str:
    if params.gpus_per_node == 1:
        has = "gpus_per_node is 1"
    elif params.work.device is Device.CUDA and is_slice(node.gpu_resource):
        has = f"a run takes one {node.gpu_resource}: {NO_JOINED_SLICES}"
    elif node.num_gpus is None or params.work.device is Device.CPU:
        has = "how many there are is not known: set gpus_per_node"
    else:
        has = f"the node has {node.num_gpus}"
    return f"needs at least 2 GPUs per node, {has}"


def impossible_on(node: GpuNode, spec: RunSpec, force: bool) -> str | None:
    """Why the run, or a gang's share of it, cannot run on this node. Of memory only a need beyond the whole GPU counts:
    the formula errs by some percent, and a run that ends out of memory is better evidence than a skipped one.
    """
    world_size, gpus = spec.placement.world_size, spec.placement.gpus_per_node
    if spec.placement.is_slice and world_size > 1:
        return f"needs {world_size} GPUs, the node has {node.gpu_resource}: {NO_JOINED_SLICES}"
    if node.num_gpus is not None and node.num_gpus < gpus:
        return (
            f"needs {count(gpus, 'GPU')} of one node, a node of this kind has {node.num_gpus}: choose fewer in "
            "world_sizes or gpus_per_node, or name nodes with more in nodes"
        )
    if force or spec.work.own_job or spec.work.device is not Device.CUDA or node.gpu_memory_bytes is None:
        return None
    # Where the program may choose, count the choice with the smallest need.
    need_bytes = memory_need_bytes(spec, node.gpu_memory_bytes).total
    if need_bytes <= node.gpu_memory_bytes:
        return None
    gpu = f"a GPU of the node ({node.gpu_product})" if node.gpu_product else "a GPU of the node"
    return (
        f"needs about {need_bytes / 1e9:.1f} GB of GPU memory, {gpu} has {node.gpu_memory_bytes / 1e9:.1f} GB: choose "
        "a smaller micro-batch, checkpointing, a strategy that shards or a leaner recipe; force=true runs it all the "
        "same"
    )


def kind_of(product: str | None, device: Device = Device.CUDA) -> str:
    """The name of a kind of GPU, in the spelling of the cluster's labels."""
    if device is Device.CPU:
        return "CPU"
    return product.replace(" ", "-") if product else "GPU unknown"


def _without_nodes(fleet: Fleet, nodes: Sequence[GpuNode]) -> Iterator[Skipped]:
    """Kinds of GPU in the cluster without a node that can be benchmarked."""
    there = {kind_of(node.gpu_product) for node in nodes}
    kinds = grouped((kind_of(node.gpu_product), node) for node in fleet.absent if node.gpu_product)
    for kind, absent in kinds.items():
        if kind not in there:
            yield Skipped(
                what=f"everything on {kind}",
                reason="; ".join(f"{node.name}: {node.reason}" for node in absent[:5]),
                nodes=tuple(node.name for node in absent),
                gpu_product=absent[0].gpu_product,
            )


def _of_other_gpus(fleet: Fleet, nodes: Sequence[GpuNode], params: BenchmarkParams) -> Iterator[Skipped]:
    """The nodes that are left out of gangs because most have another GPU."""
    left = [node for node in fleet.nodes if not params.nodes and node not in nodes]
    for product, of_kind in grouped((node.gpu_product, node) for node in left).items():
        names = tuple(node.name for node in of_kind)
        reason = f"a gang has GPUs of one kind, and most nodes have {nodes[0].gpu_product}: name these in 'nodes'"
        yield Skipped(what=f"links of {listing(names)}", reason=reason, nodes=names, gpu_product=product)


def chosen_nodes(params: BenchmarkParams, fleet: Fleet) -> tuple[GpuNode, ...]:
    """The nodes that `params` name, else those of the fleet. Raises PlanError for none."""
    if params.nodes:
        absent = (GpuNode(name=node.name, gpu_resource=node.gpu_resource) for node in fleet.absent)
        return named_nodes(params.nodes, (*fleet.nodes, *absent))
    if fleet.nodes:
        return fleet.nodes
    if fleet.absent:
        reasons = "; ".join(f"{node.name}: {node.reason}" for node in fleet.absent[:5])
        raise PlanError(
            f"no GPU node can be benchmarked: {reasons}; repair one, or name nodes in the parameter 'nodes'"
        )
    if params.node_labels:
        raise PlanError(f"no nodes: none with GPUs has the labels of node_labels, '{params.node_labels}'")
    raise PlanError("no nodes: none are given and none with GPUs were found; name them in the parameter 'nodes'")


def unknown_gpus(plan: Plan) -> str | None:
    """A sentence on nodes measured on one GPU only because their number is unknown; None where all are known."""
    if plan.params.work.device is not Device.CUDA or plan.params.gpus_per_node is not None:
        return None
    unknown = [node.name for node in plan.known if node.num_gpus is None]
    if not unknown or set(plan.params.strategies) == {Strategy.SINGLE}:
        return None
    return (
        f"how many GPUs {listing(unknown)} {'has' if len(unknown) == 1 else 'have'} is not known, so one is measured: "
        "set gpus_per_node"
    )


def confirm_specs(plan: Plan, suspects: Collection[str], controls: Collection[str]) -> tuple[RunSpec, ...]:
    """The re-runs: of each group on each suspect and each control, round by round, as the rounds after the last.

    Two rounds, because with one a fleet of 256 nodes, of which 1 % of the runs are disturbed, has a node that is red by
    two chances in 2.6 % of its nights. `controls` are nodes that are well: their own change between first run and
    re-run is taken out of the suspects'. Up to three of a work and kind of GPU, so that one disturbed one does not
    decide.
    """
    nodes = {*suspects, *controls}
    return tuple(
        spec.changed(identity={"round": again, "run_id": run_id(spec.identity.group_id, spec.identity.node, again)})
        for again in range(plan.params.rounds + 1, plan.params.rounds + 1 + RERUN_ROUNDS)
        for spec in plan.specs
        if spec.identity.node in nodes and spec.identity.round == 1
    )


def refuse_more_pods_than(limit: int, plan: Plan) -> None:
    """Raise PlanError when one mapped task of the DAG would have more pods than Airflow maps.

    Independent runs are mapped in as many blocks as needed; each gang, and of a search the gangs of a round, are one
    mapped task.
    """
    pods = [spec.placement.nodes for spec in plan.specs]
    largest = sum(pods) if plan.campaign_kind is CampaignKind.INTERCONNECT else max(pods)
    if largest <= limit:
        return
    raise PlanError(
        f"{count(largest, 'pod')} of one gang are more than Airflow maps in one task: [core] max_map_length is {limit}"
        f". Raise it to {largest} or more (AIRFLOW__CORE__MAX_MAP_LENGTH, for the API server and the workers), or "
        "choose fewer nodes (parameters 'nodes', 'world_sizes')"
    )


def campaign_id(dag_id: str, dag_run_id: str) -> str:
    """The id of one DAG run as a folder name: Airflow's own run ids hold ':' and '+'."""
    return identifier(f"{dag_id}-{dag_run_id}", 150)


QUICK = Measurement(warmup_steps=3, measured_steps=5, max_measured_steps=5, max_window_s=2.0, repeats=3)


def spec_of(
    params: BenchmarkParams,
    strategy: Strategy,
    nodes: Sequence[str],
    gpus_per_node: int,
    campaign_id: str,
    round_: int = 1,
    gpu_resource: str = WHOLE_GPU,
    link_sweep: LinkSweep | None = None,
) -> RunSpec:
    """The run of `strategy` on `nodes`, node rank 0 first. Raises pydantic's ValidationError."""
    work = _work(params, strategy)
    placement = Placement(
        strategy=strategy,
        nodes=len(nodes),
        gpus_per_node=gpus_per_node,
        gpu_resource=gpu_resource if work.device is Device.CUDA else WHOLE_GPU,
    )
    measurement = QUICK if params.quick else params.measurement
    # A readable group id of the work. Independent GPUs do the same work whatever their number.
    digest = fingerprint(work, placement, measurement, *filter(None, [link_sweep]))
    size = "" if placement.strategy is Strategy.INDEPENDENT else f"-{placement.nodes}x{placement.gpus_per_node}"
    shape = f"b{work.micro_batch_size}-s{work.seq_length}"
    what = work.model if work.own_job else f"{work.model}-{work.recipe}-{placement.strategy}"
    group_id = identifier(f"{what}{size}{'' if work.own_job else f'-{shape}'}-{digest}", 150)
    return RunSpec(
        identity=Identity(
            campaign_id=campaign_id,
            run_id=run_id(group_id, nodes[0], round_),
            group_id=group_id,
            node=nodes[0],
            peers=tuple(nodes[1:]),
            round=round_,
        ),
        work=work,
        placement=placement,
        measurement=measurement,
        link_sweep=link_sweep,
        timeout_s=params.timeout_s,
        drill=Drill(slowdown_pct=params.drill_slowdown_pct) if params.drill_node in nodes else None,
    )


def impossible_reason(strategy: Strategy, params: BenchmarkParams) -> str | None:
    """Why this strategy cannot run anywhere with these params."""
    if strategy is Strategy.OWN:
        return None
    job, seq_length = params.work, _seq_length(params, strategy)
    if seq_length > job.shape.max_positions:
        return (
            f"seq_length {seq_length} is beyond the {job.shape.max_positions} positions of "
            f"'{job.model}': choose a shorter one"
        )
    return job.unsupported(strategy)


def _seq_length(params: BenchmarkParams, strategy: Strategy) -> int:
    """Tokens per sample; on several GPUs at most the model's positions."""
    if strategy in SINGLE_GPU or params.multi_gpu_seq_length is None:
        return params.work.seq_length
    return min(params.multi_gpu_seq_length, params.work.shape.max_positions)


def _work(params: BenchmarkParams, strategy: Strategy) -> Work:
    """The work of this strategy's ranks: empty settings come from the preset; parts that the recipe lacks are None."""
    job = params.work
    if strategy is Strategy.OWN:
        return Work(
            device=job.device,
            model=job.own_job.name,
            recipe=Recipe.FULL,
            micro_batch_size=job.own_job.samples_per_step or AUTO,
            gradient_checkpointing=False,
            own_job=job.own_job,
        )
    settings = {name: getattr(job, name) for name in WorkSettings.model_fields}
    decided = {name: own for name, own in PRESET_SETTINGS[job.preset].items() if settings[name] is None}
    lora = job.lora.model_copy(update={"targets": lora_targets(job.shape, job.lora_targets)})
    return Work(
        **settings | decided | {"seq_length": _seq_length(params, strategy)},
        lora=None if job.recipe is Recipe.FULL else lora,
        quantisation=job.quantisation if job.recipe is Recipe.QLORA else None,
        data="memory" if job.data_folder is None else DiskData(folder=job.data_folder, **dict(job.data)),
    )


def run_id(group_id: str, node: str, round_: int) -> str:
    return identifier(f"{group_id}-{node}-r{round_}", 200)


def identifier(text: str, max_length: int) -> str:
    """`text` in lower case with only letters, digits, '.', '_' and '-'; a long text becomes its start and a hash."""
    clean = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")
    if len(clean) <= max_length and clean:
        return clean
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{clean[: max_length - 9].strip('._-')}-{digest}".lstrip("-")


class Interconnect:
    """A fleet whose links are searched: `nodes` have one kind of GPU."""

    def __init__(self, params: BenchmarkParams, nodes: Sequence[GpuNode], campaign_id: str) -> None:
        self._params, self._campaign_id = params, campaign_id
        self._gpus = _gpus_of_all(nodes, params)
        self._resource = nodes[0].gpu_resource
        labels = {node.name: node.topology for node in nodes if node.topology}
        self.groups = groups_of([node.name for node in nodes], labels)
        # One GPU has no link within its node.
        self.has_inner_link = params.work.device is Device.CUDA and self._gpus > 1

    def search(self) -> LinkSearch:
        return LinkSearch(self.groups, has_inner_link=self.has_inner_link)

    @property
    def promise(self) -> str:
        """What the search takes at most, in one sentence."""
        bound = bound_of(self.groups, has_inner_link=self.has_inner_link)
        rounds = min(bound.rounds, MOST_ROUNDS)
        most = duration(rounds * self._params.timeout_s)
        return (
            f"{count(len(self.groups), 'group')}: {bound.healthy_runs} runs in {count(bound.healthy_rounds, 'round')} "
            f"where all are well; at most {bound.runs} runs in {count(rounds, 'round')} and {most}, by timeout_s "
            f"{self._params.timeout_s:g}, beside the waiting for busy nodes"
        )

    def specs(self, tests: Sequence[GroupTest], round_: int) -> tuple[RunSpec, ...]:
        """One run for each group."""
        return tuple(
            spec_of(
                self._params,
                Strategy.DDP,
                test.nodes,
                self._gpus,
                self._campaign_id,
                round_,
                self._resource,
                LinkSweep(top_bytes=self._params.link_top_bytes, inner_link=test.inner_link),
            )
            for test in tests
        )
