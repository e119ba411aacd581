"""Parameters of a campaign: one frozen model, each setting declared once; the trigger form and the reports are made of
it. Which kinds of campaign have a parameter follows from its section, or from ONLY.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bench_image.contract.frozen import setting
from bench_image.contract.links import SMALLEST_BYTES
from bench_image.contract.model_shapes import MODELS, SAME_SHAPE, known_name
from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.own_job import OwnJob
from bench_image.contract.spec import Measurement, NodeName, SlowdownPct, TimeoutS
from bench_image.contract.work import (
    DataFolder,
    Device,
    Lora,
    Quantisation,
    SeqLength,
    Shards,
    WorkSettings,
    is_reference,
)
from trainbench.core.close_matches import did_you_mean
from trainbench.core.formats import listing
from trainbench.core.label_selector import LabelSelector
from trainbench.core.verdicts import LevelSource, Metric, Tolerances
from trainbench.params.campaign_kind import SUITES, CampaignKind
from trainbench.params.form_fields import TEXT_OR_NUMBER, FormParams, airflow_schema, form_fields, in_form, json_object
from trainbench.params.refusals import ParamsError, refusal
from trainbench.params.variants import BASELINE, DISK, VARIANTS
from trainbench.prices.quote import HOURS_PER_MONTH

WORLD_SIZES = (1, 2, 4)
EVERY = frozenset(CampaignKind)
_NODES = frozenset({CampaignKind.NODES, CampaignKind.NOISE})
_GANGS = frozenset({CampaignKind.STRATEGIES})
_CONFIGURATIONS = frozenset({CampaignKind.CONFIGURATIONS})
_HARDWARE = frozenset({CampaignKind.HARDWARE})
_LINKS = frozenset({CampaignKind.INTERCONNECT})
# In the order in which the form shows them, with the kinds of campaign whose forms and reports have them.
SECTIONS: Mapping[str, frozenset[CampaignKind]] = {
    "Configurations": _CONFIGURATIONS,
    "Survey": _HARDWARE,
    "Links": _LINKS,
    "Nodes": EVERY,
    "Own job": _NODES | _GANGS,
    **dict.fromkeys(("Work", "Measurement"), EVERY),
    "Limits": _NODES,
    "Cost": EVERY,
    "Report": _HARDWARE,
    "Drill": _NODES,
}
# Parameters that belong to other kinds than their section.
ONLY: Mapping[str, frozenset[CampaignKind]] = {
    "strategies": EVERY - _CONFIGURATIONS - _LINKS,
    "gpus_per_node": _NODES | _GANGS | _LINKS,
    "world_sizes": _GANGS | _HARDWARE,
    "rounds": EVERY - _GANGS - _LINKS,
    **dict.fromkeys(("model", "dimensions", "weights", "recipe"), EVERY - _HARDWARE),
    **dict.fromkeys(("noise_floor", "multi_gpu_seq_length"), _NODES),
    "min_gpu_use_pct": EVERY,
}
# The form's fields start from these. Past: equal nights of one GPU differ by less than 0.1 %
# (docs/results/aa-h200-2026-11-22).
LIMITS = Tolerances()
# Percent of samples/s. On a CPU twice what nodes of a trial that measure in turn were apart on a machine with several
# times the load of its cores: docs/results/demo-definite-2026-11-24.
RATE_LIMITS_PCT = {Device.CUDA: LIMITS.samples_per_second_pct, Device.CPU: 15.0}
# Parameters of 0.1.0 that are gone; stored plans and campaigns have them, always both.
GONE = frozenset({"reference", "fixed_samples_per_second"})
# Share of time in which any kernel ran (NVML). docs/results: Mistral-7B on one GPU 85 % or more; tier A, whose short
# steps wait for the host, 16 to 56 %.
MIN_GPU_USE_PCT = 80.0
NOISE_FLOOR_ROUNDS = 5  # with fewer, the estimate of the noise is good to a factor of two at best
Usd = Annotated[float, Field(gt=0, le=1e9)]


def _in_section(section: str) -> Callable[..., Any]:
    """As `setting`, without the section."""
    return lambda default, title, text, **bounds: setting(default, section, title, text, **bounds)


in_configurations, in_survey, in_links, in_nodes, in_work, in_measurement, in_limits, in_cost, in_report, in_drill = (
    _in_section(name) for name in SECTIONS if name != "Own job"
)


class WorkParams(WorkSettings):
    """Work settings of the form, from which `planning.plan` makes a run's `Work`. None: by the preset or the model."""

    lora: Lora = Lora()
    lora_targets: Literal["attention", "all"] = in_work(
        "attention", "LoRA targets", "Adapt the attention's linear layers, or all that can be adapted."
    )
    quantisation: Quantisation = Quantisation()
    data_folder: DataFolder | None = in_work(
        None,
        "Data folder",
        "Empty: the data is in memory. Else shard files are written to and read from this folder, as the pod sees it.",
    )
    data: Shards = Shards()
    own_job: OwnJob = OwnJob()

    _dimensions = field_validator("dimensions", mode="before")(json_object)

    @model_validator(mode="after")
    def _model_has_dimensions(self) -> WorkParams:
        if is_reference(self.model):
            if self.dimensions is not None:
                raise ValueError(f"model '{self.model}' has a config.json: leave its dimensions empty")
            return self
        if self.dimensions is None and self.model not in MODELS:
            known = (*MODELS, *SAME_SHAPE)
            raise ValueError(
                f"model is '{self.model}': not a known model{did_you_mean(self.model, known)}: choose one of "
                f"{', '.join(known)}, or give its dimensions or the path of its config.json"
            )
        if self.dimensions is not None and self.model in MODELS:
            raise ValueError(f"model '{self.model}' has dimensions of its own: give yours another name")
        return self


_SELECTOR: TypeAdapter[str] = TypeAdapter(LabelSelector)


def _label_selector(text: str) -> str:
    """Checked here: as a pattern of the form, Python's own expressions might take for ever."""
    try:
        return _SELECTOR.validate_python(text)
    except ValidationError:
        raise ValueError("no label selector: give one such as pool=gpu,tier!=dev") from None


def _known(name: str, names: Collection[str]) -> str:
    if name not in names:
        raise ValueError(f"'{name}' is not known{did_you_mean(name, names)}: choose from {', '.join(names)}")
    return name


def _of_our_loop(strategy: Strategy) -> Strategy:
    if strategy is Strategy.OWN:
        raise ValueError("'own' is the strategy of a command of yours: give the parameter command instead")
    return strategy


def _choices(names: Iterable[str]) -> Any:
    """What the form and an editor offer."""
    return Field(json_schema_extra={"enum": list(names)})


VariantName = Annotated[str, AfterValidator(lambda name: _known(name, VARIANTS)), _choices(VARIANTS)]
ModelName = Annotated[
    str, AfterValidator(lambda name: _known(str(known_name(name)), MODELS)), _choices((*MODELS, *SAME_SHAPE))
]
OurStrategy = Annotated[
    Strategy, AfterValidator(_of_our_loop), _choices(each for each in Strategy if each is not Strategy.OWN)
]


class ComparisonParams(FormParams):
    """The parameters that only `config_diagnosis` and `hardware_survey` have, in the form's order."""

    variants: tuple[VariantName, ...] = in_configurations(
        tuple(VARIANTS),
        "Configurations",
        "Each is the work below with one thing changed. The unchanged work is the baseline, which runs in every round.",
        min_length=1,
    )
    own_variants: Annotated[
        Mapping[str, Mapping[str, Any]], BeforeValidator(lambda value: json_object(value) or {})
    ] = in_configurations(
        {},
        "Your own configurations",
        'More of them: a name, and the parameters of the work that it changes: `{"rank 64": {"lora_rank": 64}}`.',
        max_length=50,
    )
    variant_data_folder: str = in_configurations(
        "/scratch/data",
        f"Folder of '{DISK}'",
        "The folder of its shard files, as the pod sees it: on a local disk, NFS or a volume.",
        min_length=1,
        max_length=1000,
    )
    models: tuple[ModelName, ...] = in_survey(
        ("mistral-7b", "llama2-13b", "encoder-decoder"),
        "Models",
        "Each runs with each recipe on each kind of GPU. `encoder-decoder` is trained from scratch: only `full`.",
        min_length=1,
    )
    recipes: tuple[Recipe, ...] = in_survey(
        (Recipe.FULL, Recipe.LORA, Recipe.QLORA),
        "Recipes",
        "Full fine-tuning, LoRA, or LoRA on 4-bit weights (QLoRA).",
        min_length=1,
    )
    nodes_per_gpu_type: int = in_survey(
        1,
        "Nodes per kind of GPU",
        "The first nodes of each kind run; of nodes that you name, all.",
        ge=1,
        le=1000,
    )
    baseline_gpu: str | None = in_report(
        None,
        "Relative to",
        "The GPU with relative speed 1, by words of its name, such as `A100 80GB`. Empty: the fastest one.",
        min_length=1,
        max_length=100,
    )
    epoch_samples: int = in_report(
        50_000, "Samples per epoch", "For the time of one epoch.", ge=1, le=1_000_000_000_000
    )
    budgets_usd: tuple[Usd, ...] = in_report(
        (500.0, 2000.0, 5000.0, 15000.0),
        "Budgets (USD)",
        "The report shows what each buys.",
        min_length=1,
        max_length=10,
    )
    purchase_usd: Annotated[Mapping[str, Usd], BeforeValidator(lambda value: json_object(value) or {})] = in_report(
        {},
        "Purchase prices (USD)",
        'Price of one GPU with its share of the server, by words of its name: `{"A10": 3500, "H100": 30000}`. Empty: '
        "the list price of the bare card, for RTX cards only.",
    )
    used_hours_per_month: float = in_report(
        365.0, "Use (hours per month)", "Hours of work of an owned GPU; a month has 730.", gt=0, le=HOURS_PER_MONTH
    )
    life_months: float = in_report(36.0, "Life (months)", "Months until an owned GPU is worth 0.", gt=0, le=240)
    opex_usd_per_gpu_hour: float = in_report(
        0.0,
        "Running cost (USD per GPU-hour)",
        "Cost of an owned GPU per hour of work: power, space, staff.",
        ge=0,
        le=1000,
    )

    @field_validator("own_variants")
    @classmethod
    def _change_the_work(cls, variants: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        of_work = [name for name, field in FIELDS.items() if field.path[0] == "work" and "own_job" not in field.path]
        for name, changes in variants.items():
            if not 1 <= len(name) <= 40 or name in (BASELINE, *VARIANTS):
                raise ValueError(f"'{name[:60]}' cannot be a name: it is taken, or has not 1 to 40 letters")
            if not changes:
                raise ValueError(f"'{name}' changes nothing")
            if wrong := [field for field in changes if field not in of_work or field == "device"]:
                close = did_you_mean(wrong[0], of_work)
                raise ValueError(f"'{name}' changes {wrong[0]}{close}: choose parameters of the work")
        return variants

    @field_validator("variants", "models", "recipes")
    @classmethod
    def _once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if twice := [str(name) for name in names if names.count(name) > 1]:
            raise ValueError(f"'{twice[0]}' is named twice: name each once")
        return names


class LinkParams(ComparisonParams):
    """The parameters that only `interconnect` has, in the form's order."""

    link_top_bytes: int = in_links(
        2**30, "Largest message (bytes)", "Each collective runs from 8 KiB to this size, doubling.",
        ge=SMALLEST_BYTES, le=2**34,
    )  # fmt: skip
    link_slower_pct: float = in_links(
        8.0,
        "Slower than other groups (%)",
        "A group whose bandwidth, latency or training is worse by more, and more than groups scatter, is slow.",
        gt=0,
        lt=100,
    )
    link_gb_per_s: float | None = in_links(
        None,
        "Promised bus bandwidth (GB/s)",
        "What an all-reduce between nodes should reach. Empty: groups are compared with each other only.",
        gt=0,
        le=1e6,
    )
    link_share_pct: float = in_links(
        92.0, "Least share of it (%)", "A group below this share of the promise is slow.", gt=0, le=100
    )


class BenchmarkParams(LinkParams):
    """The parameters of a campaign. Forms and files hold the fields of its parts side by side; see `form_fields`."""

    nodes: tuple[NodeName, ...] | None = in_nodes(
        None, "Nodes", "Node names, one per line. Empty: every node with free GPUs that the cluster reports."
    )
    node_labels: Annotated[str, AfterValidator(_label_selector)] | None = in_nodes(
        None,
        "Node labels",
        "Only nodes with these labels, such as `pool=gpu,tier!=dev`. It counts where no nodes are named.",
        max_length=1000,
    )
    strategies: tuple[OurStrategy, ...] = in_nodes(
        (Strategy.SINGLE,),
        "Strategies",
        "One pod per node **and** strategy. `independent`: all GPUs at once, each by itself. `single`: one GPU. The "
        "others use all GPUs together: `ddp` copies the model to each, `fsdp` (FSDP2) shards weights, gradients and "
        "optimizer states, `zero2` (DeepSpeed) gradients and optimizer states, `zero3` the weights too. Beside "
        "`independent`, `ddp` is left out on nodes with one GPU.",
        min_length=1,
    )
    gpus_per_node: int | None = in_nodes(
        None,
        "GPUs per node",
        "The most GPUs of a node that a run takes; `single` takes one. Empty: all allocatable ones.",
        ge=1,
        le=64,
    )
    world_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = in_nodes(
        WORLD_SIZES,
        "Numbers of GPUs",
        "`single` runs at 1, the other strategies at each above 1. GPUs beyond those of one node come from further "
        "nodes of the same kind; a run of a survey stays on one node.",
        min_length=1,
    )

    work: WorkParams = WorkParams()
    multi_gpu_seq_length: SeqLength | None = in_work(
        None,
        "Sequence length, several GPUs",
        "For strategies whose GPUs work together; with short samples the host's noise hides a slow GPU. Empty: "
        "the same.",
    )
    force: bool = in_work(
        False, "Run jobs that do not fit", "Also run jobs that do not fit the node's GPUs by the memory formula."
    )

    quick: bool = in_measurement(
        False,
        "Quick",
        "Three windows of five steps show that everything works. Before you act on a slow node, repeat the run "
        "without `quick`.",
    )
    measurement: Measurement = Measurement()
    noise_floor: bool = in_measurement(
        False,
        "Noise floor only",
        f"Every node does the same work {NOISE_FLOOR_ROUNDS} times or more and none is judged: the report shows "
        "which deviation this fleet can detect.",
    )
    rounds: int = in_measurement(
        1,
        "Rounds",
        f"Passes over all nodes. Two or more measure the noise between runs; a noise floor takes {NOISE_FLOOR_ROUNDS} "
        "or more.",
        ge=1,
        le=20,
        validate_default=True,
    )
    timeout_s: TimeoutS = in_measurement(1800.0, "Timeout (s)", "Time limit of one pod's program.")

    samples_per_second_tolerance_pct: float | None = in_limits(
        None,
        "Samples/s beside peers (%)",
        f"A node that is slower than its peers by more is slow. Empty: {RATE_LIMITS_PCT[Device.CUDA]:.0f} on GPUs, "
        f"{RATE_LIMITS_PCT[Device.CPU]:.0f} in trials on a CPU.",
        gt=0,
        le=100,
        validate_default=True,
    )
    past_tolerance_pct: float | None = in_limits(
        None,
        "Samples/s beside its own past (%)",
        f"A node that is slower than it was by more is slow too. Empty: {LIMITS.past_pct:g} on GPUs, the limit beside "
        "peers in trials on a CPU.",
        gt=0,
        le=100,
        validate_default=True,
    )
    memory_tolerance_pct: float = in_limits(
        LIMITS.memory_pct, "GPU memory (%)", "Limit for the peak of memory that torch allocated.", gt=0, le=100
    )
    temperature_tolerance_c: float = in_limits(
        LIMITS.temperature_c,
        "Temperature (°C)",
        "Limit for the mean temperature in the measured windows.",
        gt=0,
        le=100,
    )
    also_red: tuple[Literal[Metric.MEMORY_GB, Metric.TEMPERATURE_C], ...] = in_limits(
        (),
        "Also red",
        "What turns a node red beyond its limit. What is not chosen asks a person to look.",
    )
    levels: LevelSource = in_limits(
        LevelSource.SHIPPED,
        "Known levels",
        "What a GPU of this kind makes of this work. `shipped`: the levels of this release. `own`: those that "
        "`trainbench levels` keeps, then the shipped ones. `none`: no levels.",
    )
    min_gpu_use_pct: float = in_limits(
        MIN_GPU_USE_PCT,
        "GPU use (at least, %)",
        "A GPU that is busy for less of the time is reported: it waited for its host or its peers. 0: never reported.",
        ge=0,
        le=100,
    )
    usd_per_gpu_hour: float | None = in_cost(
        None, "Price (USD per GPU-hour)", "Empty: the price table, by GPU name.", gt=0, le=10_000
    )

    drill_node: NodeName | None = in_drill(
        None, "Slow this node on purpose", "A fire drill: the check must detect the node, and the run turns red."
    )
    drill_slowdown_pct: SlowdownPct = in_drill(
        75.0, "Slowdown (% of throughput)", "Choose a share well above the noise."
    )

    @model_validator(mode="before")
    @classmethod
    def _without_gone_parameters(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.keys() >= GONE:
            return {name: value for name, value in values.items() if name not in GONE}
        return values

    @field_validator("rounds")
    @classmethod
    def _enough_for_noise(cls, rounds: int, info: ValidationInfo) -> int:
        """Raise the rounds of a noise floor to the minimum: the form always sends a number, chosen or not."""
        return max(rounds, NOISE_FLOOR_ROUNDS) if info.data.get("noise_floor") else rounds

    @field_validator("samples_per_second_tolerance_pct")
    @classmethod
    def _limit_of_the_device(cls, value: float | None, info: ValidationInfo) -> float:
        """Fill in the device's limit here, so that reports and results show the applied figure."""
        if value is not None:
            return value
        return RATE_LIMITS_PCT[info.data["work"].device if "work" in info.data else Device.CUDA]

    @field_validator("past_tolerance_pct")
    @classmethod
    def _limit_of_the_past(cls, value: float | None, info: ValidationInfo) -> float:
        on_cpu = "work" in info.data and info.data["work"].device is Device.CPU
        return value or (info.data.get("samples_per_second_tolerance_pct") if on_cpu else None) or LIMITS.past_pct

    @field_validator("nodes")
    @classmethod
    def _distinct_nodes(cls, nodes: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if nodes is not None and not nodes:
            raise ValueError("zero nodes: name at least one, or leave the field empty to discover them")
        if nodes is not None and len(set(nodes)) != len(nodes):
            raise ValueError("a node is named twice: name each once")
        return nodes

    @model_validator(mode="after")
    def _consistent(self) -> BenchmarkParams:
        if self.drill_node and self.work.own_job.command:
            raise ValueError("drill_node with a command of yours, which nobody but you can slow down: drop one")
        if self.drill_node and self.nodes and self.drill_node not in self.nodes:
            raise ValueError(f"drill_node '{self.drill_node}' is not among the nodes {', '.join(self.nodes)}")
        if self.drill_node and self.noise_floor:
            raise ValueError("drill_node with noise_floor: no node is judged there, so no drill is detected: drop one")
        return self

    def changed(self, **values: Any) -> BenchmarkParams:
        """A copy with other values for these fields of the form. Raises ParamsError."""
        return parse_params({**self.model_dump(), **values})

    @property
    def tolerances(self) -> Tolerances:
        return Tolerances(
            samples_per_second_pct=self.samples_per_second_tolerance_pct or RATE_LIMITS_PCT[self.work.device],
            memory_pct=self.memory_tolerance_pct,
            temperature_c=self.temperature_tolerance_c,
            past_pct=self.past_tolerance_pct or LIMITS.past_pct,
            also_red=self.also_red,
        )


FIELDS = form_fields(BenchmarkParams)


def applies_to(name: str, campaign_kind: CampaignKind) -> bool:
    """Whether this kind of campaign has the parameter: forms and reports of the others do not show it."""
    if name not in FIELDS:  # a stored campaign has it from an earlier version
        return True
    extra: Any = FIELDS[name].info.json_schema_extra
    return campaign_kind in ONLY.get(name, SECTIONS[extra["section"]])


# A trial on one machine without a GPU, which other programs use too: a tiny model, trained in full because libraries of
# adapters take longer to import than all steps do. The drill lies beyond the limit and the noise together.
LOCAL_DEFAULTS: Mapping[str, Any] = {
    "device": "cpu",
    "model": "tiny",
    "recipe": "full",
    "micro_batch_size": 1,
    "seq_length": 32,
    "optimizer": "adamw_torch",
    "warmup_steps": 3,
    # Many short windows, which the nodes measure in turn: what slows the machine for a second slows a turn of them all.
    "measured_steps": 5,
    "max_measured_steps": 5,
    "target_half_width_pct": 3.0,
    "max_window_s": 30.0,  # wall time; a busy machine gives the process only a part of it
    "repeats": 30,
    "rounds": 1,
    "timeout_s": 300.0,
    "drill_slowdown_pct": 75.0,
}


def parse_params(data: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> BenchmarkParams:
    """The parameters from `data`, with `defaults` for missing ones. Raises ParamsError."""
    readable = {name.encode(errors="replace").decode(): value for name, value in data.items()}  # no lone surrogates
    try:
        return BenchmarkParams.model_validate({**(defaults or {}), **readable})
    except ValidationError as error:
        raise refusal(error, FIELDS) from None


def refuse_other_names(names: Iterable[str], campaign_kind: CampaignKind) -> None:
    """Raise ParamsError for a name that is no parameter of this kind's suite: it would change nothing."""
    choices = [name for name in FIELDS if applies_to(name, campaign_kind)]
    if wrong := [name for name in names if name not in choices]:
        suite = next(suite for suite, kind in SUITES.items() if kind is campaign_kind)
        verb = "is not a parameter" if len(wrong) == 1 else "are not parameters"
        shown = {name: f"{name}{did_you_mean(name, choices)}" for name in wrong}
        choose = f"choose from {', '.join(choices)}"
        faults = [(f"{text} is not a parameter of {suite}: {choose}", (name,)) for name, text in shown.items()]
        raise ParamsError(f"{listing(shown.values())} {verb} of {suite}: {choose}", faults)


def form(
    defaults: Mapping[str, Any] | None = None, world_sizes: Sequence[int] = WORLD_SIZES
) -> dict[str, dict[str, Any]]:
    """Field name -> keyword arguments of Airflow's `Param`: a JSON Schema, with default, section, title and help.

    `world_sizes` are the numbers of GPUs that the form offers, all of them chosen unless `defaults` say otherwise.
    """
    values = parse_params({"world_sizes": world_sizes} | dict(defaults or {})).model_dump(mode="json")
    # Empty unless given, so that another device chosen in the form gets that device's limits.
    for name in ("samples_per_second_tolerance_pct", "past_tolerance_pct"):
        values[name] = (defaults or {}).get(name)
    fields: dict[str, dict[str, Any]] = {}
    for name in sorted(FIELDS, key=_place):
        schema = {**airflow_schema(FIELDS[name]), **BY_HAND.get(name, {})}
        fields[name] = {"default": in_form(values[name], schema), **schema}
    fields["world_sizes"]["examples"] = [str(size) for size in world_sizes]
    return fields


def _place(name: str) -> tuple[int, int, bool]:
    """Sort key: the section, then the order of declaration."""
    before = FOLLOWS.get(name, name)
    section: Any = FIELDS[name].info.json_schema_extra
    return list(SECTIONS).index(section["section"]), list(FIELDS).index(before), name in FOLLOWS


# Field of the form -> the field that it follows, where the order of declaration would separate them.
FOLLOWS = {"multi_gpu_seq_length": "seq_length", "seed": "timeout_s"}
# Choices of the form that the pydantic fields do not declare.
BY_HAND: Mapping[str, Mapping[str, Any]] = {
    "world_sizes": {"items": {"type": TEXT_OR_NUMBER, "minimum": 1, "pattern": "^[1-9][0-9]{0,4}$"}},
    **{name: {"type": ["object", "null"]} for name in ("own_variants", "purchase_usd")},
}
