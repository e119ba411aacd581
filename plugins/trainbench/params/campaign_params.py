"""Parameters of a campaign: one frozen model, the defaults of each setting, and the trigger form made from both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bench_image.contract.model_shapes import MODELS, ModelShape
from bench_image.contract.options import Optimizer, Precision, Recipe, Strategy
from bench_image.contract.spec import NODE_NAME
from bench_image.contract.weights import normal_weights
from bench_image.contract.work import Device, Preset
from trainbench.core.user_error import UserError
from trainbench.core.verdicts import ReferenceMode, Tolerances
from trainbench.params.comparison_params import ComparisonParams
from trainbench.params.comparison_params import field as _field
from trainbench.params.variants import VARIANTS

NodeParam = Annotated[str, StringConstraints(pattern=NODE_NAME)]
MODEL_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MICRO_BATCH = r"^(auto|[1-9][0-9]{0,4})$"
WORLD_SIZES = (1, 2, 4)
# The order in which the form shows them.
SECTIONS = ("Configurations", "Survey", "Nodes", "Work", "Measurement", "Limits", "Cost", "Report", "Drill")
SWITCH = {True: "on", False: "off", "auto": "auto", None: None}
# Of samples/s. Even the CPU time of equal work differs by several percent from window to window on a busy machine.
RATE_LIMITS_PCT = {Device.CUDA: 5.0, Device.CPU: 40.0}
NOISE_FLOOR_ROUNDS = 5  # below, the noise itself is known to a factor of two at best


class ParamsError(UserError, ValueError):
    """The message says which value is wrong, what is allowed and what to do."""


class BenchmarkParams(ComparisonParams):
    """One field for each field of the trigger form, in the form's order."""

    nodes: tuple[NodeParam, ...] | None = _field(
        None,
        "Nodes",
        "Nodes",
        "Node names, one per line. Empty: every node with free GPUs that the cluster reports.",
    )
    strategies: tuple[Strategy, ...] = _field(
        (Strategy.SINGLE,),
        "Nodes",
        "Strategies",
        "One pod per node **and** strategy. `independent`: every GPU by itself, all GPUs of a node at the same "
        "time. `single`: one GPU of the node. The others use all GPUs together: `ddp` copies the model "
        "to each, `fsdp` (FSDP2) shards weights, gradients and optimizer states, `zero2` (DeepSpeed) shards gradients "
        "and optimizer states, `zero3` the weights too. Beside `independent`, `ddp` is left out on nodes with one GPU.",
        min_length=1,
    )
    gpus_per_node: int | None = _field(
        None,
        "Nodes",
        "GPUs per node",
        "The most GPUs that a run takes, for every strategy except `single`. Empty: all allocatable GPUs of the node.",
        ge=1,
        le=64,
    )
    world_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = _field(
        WORLD_SIZES,
        "Nodes",
        "Numbers of GPUs",
        "Every strategy except `single` runs at each of these above 1; `single` runs at 1. GPUs beyond those of one "
        "node come from further nodes of the same kind.",
        min_length=1,
    )
    device: Device = _field(Device.CUDA, "Nodes", "Device", "`cpu`: a trial without a GPU, by CPU time, without price.")

    model: str = _field(
        "mistral-7b",
        "Work",
        "Model",
        f"One of {', '.join(MODELS)}; or any name together with dimensions.",
        pattern=MODEL_LABEL,
    )
    dimensions: ModelShape | None = _field(
        None,
        "Work",
        "Dimensions",
        'Empty: those of the model. Else a JSON object with its `family` ("llama", "mistral", "mixtral", "gpt2", '
        '"encoder-decoder") and sizes, for example `{"family": "gpt2", "hidden_size": 768, "num_layers": 12, '
        '"num_heads": 12}`.',
    )
    weights: str = _field(
        "random",
        "Work",
        "Weights",
        "`random`: drawn on the GPU, no download. Else the folder of a checkpoint as the pod sees it, or a hub id with "
        "its revision: `org/name@commit`.",
        min_length=1,
        max_length=1000,
    )
    recipe: Recipe = _field(Recipe.QLORA, "Work", "Recipe", "Full fine-tuning, LoRA, or LoRA on 4-bit weights (QLoRA).")
    preset: Preset = _field(
        Preset.AS_USERS_RUN,
        "Work",
        "Preset",
        "`tuned`: fused, compiled, no needless fp32 copies: the GPU sets the pace, so runs differ little. "
        "`as_users_run`: the published guide's configuration: library defaults with gradient checkpointing and paged "
        "8-bit AdamW, unless the two fields below say otherwise.",
    )
    micro_batch_size: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = _field(
        8, "Work", "Micro-batch", "Samples per GPU and forward pass. `auto`: of the sizes that fit, the fastest."
    )
    gradient_accumulation_steps: int = _field(
        1, "Work", "Gradient accumulation", "Forward passes per optimizer step.", ge=1, le=4096
    )
    seq_length: int = _field(512, "Work", "Sequence length", "Tokens per sample, no padding.", ge=8, le=1_048_576)
    multi_gpu_seq_length: int | None = _field(
        None,
        "Work",
        "Sequence length, several GPUs",
        "For strategies whose GPUs work together. Empty: the same. With long samples the GPUs set the pace; with short "
        "ones the host does, and its noise hides theirs.",
        ge=8,
        le=1_048_576,
    )
    precision: Precision = _field(
        Precision.BF16,
        "Work",
        "Precision",
        "Precision of weights and activations. fp16 is not possible with `zero2` and `zero3`.",
    )
    optimizer: Optimizer | None = _field(
        None,
        "Work",
        "Optimizer",
        "Empty: the preset's own (`as_users_run`: paged_adamw_8bit, `tuned`: adamw_torch). 8-bit: bitsandbytes.",
    )
    gradient_checkpointing: bool | Literal["auto"] | None = _field(
        None,
        "Work",
        "Gradient checkpointing",
        "Less memory, more computing. `auto`: only if it does not fit without. Empty: the preset's own "
        "(`as_users_run`: on, `tuned`: auto).",
    )
    lora_rank: int = _field(16, "Work", "LoRA rank", "Ignored for full fine-tuning.", ge=1, le=1024)
    lora_alpha: int = _field(32, "Work", "LoRA alpha", "Ignored for full fine-tuning.", ge=1, le=4096)
    lora_dropout: float = _field(0.0, "Work", "LoRA dropout", "Ignored for full fine-tuning.", ge=0, lt=1)
    lora_targets: Literal["attention", "all"] = _field(
        "attention", "Work", "LoRA targets", "Adapt the attention's linear layers, or all that can be adapted."
    )
    double_quantisation: bool = _field(True, "Work", "Double quantisation", "QLoRA only: quantise the scales as well.")
    data_folder: str | None = _field(
        None,
        "Work",
        "Data folder",
        "Empty: the data is in memory. Else shard files are written to and read from this folder, as the pod sees it.",
        min_length=1,
        max_length=1000,
    )
    data_num_samples: int = _field(65_536, "Work", "Samples on disk", "Only with a data folder.", ge=1)
    data_num_shards: int | None = _field(
        None, "Work", "Shards on disk", "Only with a data folder. Empty: shards of about 128 MB.", ge=1, le=100_000
    )
    force: bool = _field(
        False, "Work", "Run what cannot fit", "Also run jobs that do not fit the node's GPUs by the memory formula."
    )

    quick: bool = _field(
        False,
        "Measurement",
        "Quick",
        "A sanity check of five steps. Nodes are judged by the limits alone: repeat a breach without it.",
    )
    warmup_steps: int = _field(20, "Measurement", "Warm-up steps", "Run first, not counted.", ge=1, le=10_000)
    measured_steps: int = _field(
        17, "Measurement", "Measured steps", "The fewest steps of a window: 3 windows of 17 make 51.", ge=2, le=100_000
    )
    max_measured_steps: int = _field(
        200,
        "Measurement",
        "Measured steps, at most",
        "The most steps of a window, where noise keeps it from its precision.",
        ge=2,
        le=100_000,
    )
    target_half_width_pct: float = _field(
        0.5,
        "Measurement",
        "Wanted precision (%)",
        "A window ends when the mean step time is known this well (95 % interval).",
        gt=0,
        le=100,
    )
    max_window_s: float = _field(
        30.0,
        "Measurement",
        "Longest window (s)",
        "A window also ends after this time, with at least two steps; this limits the length of a run.",
        ge=0.1,
        le=3600,
    )
    repeats: int = _field(
        3, "Measurement", "Windows per pod", "Measured windows of a run; they show the noise within it.", ge=1, le=100
    )
    noise_floor: bool = _field(
        False,
        "Measurement",
        "Noise floor only",
        f"Every node does the same work {NOISE_FLOOR_ROUNDS} times or more and none is judged: the report shows "
        "how much equal runs differ here, and which deviation this fleet can detect.",
    )
    rounds: int = _field(
        1,
        "Measurement",
        "Rounds",
        f"Passes over all nodes, minutes apart; two or more measure the noise between runs. {NOISE_FLOOR_ROUNDS} at "
        "least for the noise floor.",
        ge=1,
        le=20,
        validate_default=True,
    )
    timeout_s: float = _field(1800.0, "Measurement", "Timeout (s)", "Time limit of one pod's program.", ge=5, le=86_400)
    seed: int = _field(0, "Measurement", "Seed", "Seed of weights and data.", ge=0, lt=2**31)

    samples_per_second_tolerance_pct: float | None = _field(
        None,
        "Limits",
        "Samples/s (± %)",
        f"A node further from its peers is a breach. Empty: {RATE_LIMITS_PCT[Device.CUDA]:.0f} on GPUs, "
        f"{RATE_LIMITS_PCT[Device.CPU]:.0f} in trials on a CPU.",
        gt=0,
        le=100,
        validate_default=True,
    )
    memory_tolerance_pct: float = _field(
        2.0, "Limits", "GPU memory (± %)", "Limit for the peak of memory that torch allocated.", gt=0, le=100
    )
    temperature_tolerance_c: float = _field(
        10.0, "Limits", "Temperature (± °C)", "Limit for the mean within the windows.", gt=0, le=100
    )
    reference: ReferenceMode = _field(
        ReferenceMode.LEAVE_ONE_OUT_MEDIAN,
        "Limits",
        "Compared with",
        "`leave_one_out_median`: the median of the other nodes. `fixed` needs the figure below.",
    )
    fixed_samples_per_second: float | None = _field(
        None, "Limits", "Fixed reference (samples/s)", "Only with the fixed reference.", gt=0
    )

    usd_per_gpu_hour: float | None = _field(
        None, "Cost", "Price (USD per GPU-hour)", "Empty: the price table, by GPU name.", gt=0, le=10_000
    )

    drill_node: NodeParam | None = _field(
        None,
        "Drill",
        "Slow this node on purpose",
        "A fire drill: the check must detect the node, and the run turns red.",
    )
    drill_slowdown_pct: float = _field(
        75.0, "Drill", "Throughput to take away (%)", "Choose a share well above the noise.", ge=5, le=95
    )

    @field_validator("dimensions", mode="before")
    @classmethod
    def _json_object(cls, value: object) -> object:
        """The command line and Airflow's API may give the object as text; the form's editor shows nothing as `{}`."""
        if not isinstance(value, str):
            return value or None
        try:
            return (json.loads(value) or None) if value.strip() else None
        except ValueError as error:
            raise ValueError(f"not a JSON object ({error})") from None

    @field_validator("optimizer", "gradient_checkpointing", "data_folder", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("weights")
    @classmethod
    def _one_form(cls, weights: str) -> str:
        return normal_weights(weights)

    @field_validator("rounds")
    @classmethod
    def _enough_for_noise(cls, rounds: int, info: ValidationInfo) -> int:
        """The form always sends a number, so a smaller one need not be anybody's wish."""
        return max(rounds, NOISE_FLOOR_ROUNDS) if info.data.get("noise_floor") else rounds

    @field_validator("samples_per_second_tolerance_pct")
    @classmethod
    def _limit_of_the_device(cls, value: float | None, info: ValidationInfo) -> float:
        """Resolved here, so that reports and results show the figure that was applied."""
        return RATE_LIMITS_PCT[info.data.get("device", Device.CUDA)] if value is None else value

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
        if self.drill_node and self.nodes and self.drill_node not in self.nodes:
            raise ValueError(f"drill_node '{self.drill_node}' is not among the nodes {', '.join(self.nodes)}")
        if self.drill_node and self.noise_floor:
            raise ValueError("drill_node with noise_floor: no node is judged there, so no drill is detected: drop one")
        if self.reference is ReferenceMode.FIXED and self.fixed_samples_per_second is None:
            raise ValueError("reference 'fixed' needs fixed_samples_per_second: set it or choose another reference")
        if self.dimensions is None and self.model not in MODELS:
            known = ", ".join(MODELS)
            raise ValueError(
                f"model is '{self.model}': not a known model: choose one of {known}, or give its dimensions"
            )
        if self.dimensions is not None and self.model in MODELS:
            raise ValueError(f"model '{self.model}' has dimensions of its own: give yours another name")
        if self.max_measured_steps < self.measured_steps:
            raise ValueError(
                f"max_measured_steps {self.max_measured_steps} is below measured_steps {self.measured_steps}: raise it"
            )
        return self

    @property
    def shape(self) -> ModelShape:
        return self.dimensions or MODELS[self.model]

    @property
    def tolerances(self) -> Tolerances:
        rate_pct = self.samples_per_second_tolerance_pct or RATE_LIMITS_PCT[self.device]
        # what a CPU's runs differ by from peer to peer they differ by from night to night too
        history = {"history_pct": rate_pct} if self.device is Device.CPU else {}
        return Tolerances(
            **history,
            samples_per_second_pct=rate_pct,
            memory_pct=self.memory_tolerance_pct,
            temperature_c=self.temperature_tolerance_c,
            reference=self.reference,
            fixed_samples_per_second=self.fixed_samples_per_second,
        )


# A trial on one machine without a GPU, which other programs use too: a tiny model, trained in full because libraries of
# adapters take longer to import than all steps do. The drill lies beyond the limit and the noise together.
LOCAL_DEFAULTS: Mapping[str, Any] = {
    "device": "cpu",
    "model": "tiny",
    "recipe": "full",
    "micro_batch_size": 4,
    "seq_length": 64,
    "optimizer": "adamw_torch",
    "warmup_steps": 3,
    # Many short windows: another program may halve one of them, and the node's scatter still allows a verdict.
    "measured_steps": 12,
    "max_measured_steps": 12,
    "target_half_width_pct": 3.0,
    "max_window_s": 30.0,  # of wall time, of which a busy machine gives a process a part
    "repeats": 20,
    "rounds": 1,
    "timeout_s": 300.0,
    "drill_slowdown_pct": 75.0,
}


def parse_params(data: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> BenchmarkParams:
    """Raises ParamsError. `defaults` are used for what `data` does not name."""
    try:
        return BenchmarkParams.model_validate({**(defaults or {}), **data})
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # A field that takes a number or "auto" is reported once, not for each of the two.
        shown = [p for p in problems if not (p["type"] == "literal_error" and len(p["loc"]) > 1)]
        # Nor does a list of one wrong value need to hear that it is too short without it.
        shown = [p for p in shown if p["type"] != "too_short" or not p["input"]]
        raise ParamsError("; ".join(_explain(problem) for problem in (shown or problems)[:5])) from None


def _explain(problem: Any) -> str:
    name = str(problem["loc"][0]) if problem["loc"] else ""
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not name:
        return message
    if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
        return f"{name} is not a parameter: choose from {', '.join(BenchmarkParams.model_fields)}"
    if name == "dimensions":
        # ("dimensions", family, field): what a union says of its members
        where = ".".join(str(part) for part in problem["loc"])
        shown = "" if isinstance(problem["input"], dict) else f" is {problem['input']!r:.120}"
        return f"{where}{shown}: {message}"
    allowed = _allowed(name)
    advice = f"; allowed: {allowed}" if allowed and problem["type"] != "value_error" else ""
    return f"{name} is {problem['input']!r:.120}: {message}{advice}"


def _allowed(name: str) -> str:
    schema = form()[name]
    schema = {**schema, **schema.get("items", {})}
    if name == "micro_batch_size":
        return "1 to 65536, or auto"
    if "enum" in schema:
        return ", ".join("empty" if choice is None else str(choice) for choice in schema["enum"])
    if schema.get("pattern") == NODE_NAME:
        return "a Kubernetes node name (lower-case letters, digits, '-' and '.')"
    if schema.get("pattern") == MODEL_LABEL:
        return "letters, digits, '.', '_' and '-', at most 64"
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    return f"{low} to {high}" if low is not None and high is not None else ""


def form(
    defaults: Mapping[str, Any] | None = None, world_sizes: Sequence[int] = WORLD_SIZES
) -> dict[str, dict[str, Any]]:
    """Field name -> keyword arguments of Airflow's `Param`: a JSON Schema, with default, section, title and help.

    `world_sizes` are the numbers of GPUs that the form offers, all of them chosen unless `defaults` say otherwise.
    """
    schema = BenchmarkParams.model_json_schema()
    values = parse_params({"world_sizes": world_sizes} | dict(defaults or {})).model_dump(mode="json")
    fields: dict[str, dict[str, Any]] = {}
    for name, prop in schema["properties"].items():
        flat = {"default": values[name]} | _flatten({**prop, **BY_HAND.get(name, {})}, schema.get("$defs", {}))
        flat["description_md"] = flat.pop("description")
        flat["title"] = BenchmarkParams.model_fields[name].title
        fields[name] = flat
    # The form's text field and dropdown want text.
    fields["micro_batch_size"]["default"] = str(values["micro_batch_size"])
    fields["world_sizes"]["default"] = [str(size) for size in values["world_sizes"]]
    fields["world_sizes"]["examples"] = [str(size) for size in world_sizes]
    fields["gradient_checkpointing"]["default"] = SWITCH[values["gradient_checkpointing"]]
    # Empty unless given: who chooses another device in the form must get that device's limit.
    rate_limit = "samples_per_second_tolerance_pct"
    fields[rate_limit]["default"] = (defaults or {}).get(rate_limit)
    return dict(sorted(fields.items(), key=lambda item: SECTIONS.index(item[1]["section"])))


# What a number or a switch that may also be "auto", a proposal and a JSON object are in Airflow's form. Numbers stay
# allowed where text is drawn: Airflow's API sends them.
BY_HAND: Mapping[str, Mapping[str, Any]] = {
    "micro_batch_size": {
        "type": ["string", "integer"],
        "pattern": MICRO_BATCH,
        "minimum": 1,
        "maximum": 65536,
        "anyOf": None,
    },
    "gradient_checkpointing": {"type": ["string", "null"], "enum": ["on", "off", "auto", None], "anyOf": None},
    "model": {"examples": list(MODELS)},
    "world_sizes": {"items": {"type": ["string", "integer"]}},
    "variants": {"items": {"type": "string", "enum": list(VARIANTS)}},
    "models": {"items": {"type": "string", "enum": list(MODELS)}},
    "dimensions": {"type": ["object", "null"], "anyOf": None},
    "purchase_usd": {"type": ["object", "null"]},
}


def _flatten(prop: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """Airflow's form wants `type` and `enum` in place, not references and `anyOf`."""
    flat: dict[str, Any] = {k: v for k, v in prop.items() if k not in ("$ref", "anyOf", "default", "items")}
    if "$ref" in prop:
        target = defs[prop["$ref"].rsplit("/", 1)[-1]]
        flat |= {"type": target["type"], "enum": target["enum"]}
    if prop.get("anyOf"):
        real = next(option for option in prop["anyOf"] if option.get("type") != "null")
        flat |= _flatten(real, defs)
        flat["type"] = [flat["type"], "null"]
        if "enum" in flat:
            flat["enum"] = [*flat["enum"], None]
    if "items" in prop:
        flat["items"] = _flatten(prop["items"], defs)
        if "enum" in flat["items"]:
            flat["examples"] = flat["items"]["enum"]  # Airflow draws a multi-select from `examples`
    return flat
