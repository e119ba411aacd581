"""What a user may ask for: one frozen model, the defaults of each setting, and the trigger form made from both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from bench_control.verdicts import ReferenceMode, Tolerances
from bench_image.contract import (
    NODE_NAME,
    Device,
    Frozen,
    Optimizer,
    Precision,
    Preset,
    Recipe,
    Strategy,
)
from bench_image.sizing import MODELS

NodeParam = Annotated[str, StringConstraints(pattern=NODE_NAME)]


class ParamsError(ValueError):
    """The message says which value is wrong, what is allowed and what to do."""


def _field(default: Any, section: str, title: str, text: str, **constraints: Any) -> Any:
    return Field(default, title=title, description=text, json_schema_extra={"section": section}, **constraints)


class BenchmarkParams(Frozen):
    """One field for each field of the trigger form, in the form's order."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_enum_values=False)

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
        "One pod per node **and** strategy. `single` uses one GPU, `ddp` all GPUs given below.",
        min_length=1,
    )
    gpus_per_node: int = _field(1, "Nodes", "GPUs per node", "GPUs that `ddp` uses on each node.", ge=1, le=64)
    device: Device = _field(Device.CUDA, "Nodes", "Device", "`cpu` is for trials without a GPU: slow and noisy.")

    model: str = _field("mistral-7b", "Work", "Model", "Built from its configuration with random weights; no download.")
    recipe: Recipe = _field(Recipe.QLORA, "Work", "Recipe", "Full fine-tuning, LoRA, or LoRA on 4-bit weights (QLoRA).")
    preset: Preset = _field(
        Preset.AS_USERS_RUN,
        "Work",
        "Preset",
        "`as_users_run`: library defaults, as most train. `tuned`: the same job, no needless fp32 copies, compiled.",
    )
    micro_batch_size: int = _field(8, "Work", "Micro-batch", "Samples per GPU and forward pass.", ge=1, le=65536)
    gradient_accumulation_steps: int = _field(
        1, "Work", "Gradient accumulation", "Forward passes per optimizer step.", ge=1, le=4096
    )
    seq_length: int = _field(512, "Work", "Sequence length", "Tokens per sample, no padding.", ge=8, le=1_048_576)
    precision: Precision = _field(Precision.BF16, "Work", "Precision", "fp16 is not possible with QLoRA.")
    optimizer: Optimizer = _field(Optimizer.PAGED_ADAMW_8BIT, "Work", "Optimizer", "8-bit ones come from bitsandbytes.")
    gradient_checkpointing: bool = _field(True, "Work", "Gradient checkpointing", "Less memory, about a third slower.")
    lora_rank: int = _field(16, "Work", "LoRA rank", "Ignored for full fine-tuning.", ge=1, le=1024)
    lora_alpha: int = _field(32, "Work", "LoRA alpha", "Ignored for full fine-tuning.", ge=1, le=4096)
    double_quantisation: bool = _field(True, "Work", "Double quantisation", "QLoRA only: quantise the scales as well.")

    quick: bool = _field(
        False, "Measurement", "Quick", "A sanity check of a few steps; its figures are too noisy to judge nodes by."
    )
    warmup_steps: int = _field(20, "Measurement", "Warm-up steps", "Run first, not counted.", ge=1, le=10_000)
    measured_steps: int = _field(
        17, "Measurement", "Measured steps", "At least, per window: 3 windows of 17 make 51.", ge=2, le=100_000
    )
    max_measured_steps: int = _field(
        200, "Measurement", "Measured steps, at most", "A noisy window stops here.", ge=2, le=100_000
    )
    target_half_width_pct: float = _field(
        0.5,
        "Measurement",
        "Wanted precision (%)",
        "A window goes on until the mean step time is known this well (95 %).",
        gt=0,
        le=100,
    )
    repeats: int = _field(3, "Measurement", "Windows per pod", "Measured windows; they show plateaus.", ge=1, le=100)
    rounds: int = _field(
        1,
        "Measurement",
        "Rounds",
        "Passes over all nodes, minutes apart; two or more measure the noise between runs.",
        ge=1,
        le=20,
    )
    timeout_s: float = _field(1800.0, "Measurement", "Timeout (s)", "Of one pod's program.", ge=5, le=86_400)
    seed: int = _field(0, "Measurement", "Seed", "Of weights and data.", ge=0, lt=2**31)

    samples_per_second_tolerance_pct: float = _field(
        5.0, "Limits", "Samples/s (± %)", "A node further from its peers is a breach.", gt=0, le=100
    )
    memory_tolerance_pct: float = _field(
        2.0, "Limits", "GPU memory (± %)", "Of the peak that torch allocated.", gt=0, le=100
    )
    temperature_tolerance_c: float = _field(
        10.0, "Limits", "Temperature (± °C)", "Mean within the windows.", gt=0, le=100
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
        None, "Drill", "Slow this node on purpose", "A fire drill: the node must be found; the run turns red."
    )
    drill_slowdown_pct: float = _field(
        75.0, "Drill", "Throughput to take away (%)", "Choose it well beyond the noise.", ge=5, le=95
    )

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        if name not in MODELS:
            raise ValueError(f"not a known model: choose one of {', '.join(MODELS)}")
        return name

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
        if self.reference is ReferenceMode.FIXED and self.fixed_samples_per_second is None:
            raise ValueError("reference 'fixed' needs fixed_samples_per_second: set it or choose another reference")
        if self.recipe is Recipe.QLORA and self.precision is Precision.FP16:
            raise ValueError("precision 'fp16' corrupts the packed 4-bit weights of qlora: choose bf16 or fp32")
        if self.max_measured_steps < self.measured_steps:
            raise ValueError(
                f"max_measured_steps {self.max_measured_steps} is below measured_steps {self.measured_steps}: raise it"
            )
        return self

    @property
    def tolerances(self) -> Tolerances:
        return Tolerances(
            samples_per_second_pct=self.samples_per_second_tolerance_pct,
            memory_pct=self.memory_tolerance_pct,
            temperature_c=self.temperature_tolerance_c,
            reference=self.reference,
            fixed_samples_per_second=self.fixed_samples_per_second,
        )


# A trial on one machine without a GPU: a tiny model, and three rounds, for two leave the noise between runs uncertain.
# The price is the reference documents' A10 price and stands for an example: this machine's own is not known.
LOCAL_DEFAULTS: Mapping[str, Any] = {
    "device": "cpu",
    "model": "tiny",
    "micro_batch_size": 4,
    "seq_length": 64,
    "optimizer": "adamw_torch",
    "warmup_steps": 3,
    "measured_steps": 8,
    "max_measured_steps": 16,
    "target_half_width_pct": 3.0,
    "repeats": 3,
    "rounds": 3,
    "timeout_s": 300.0,
    "usd_per_gpu_hour": 0.60,
    "drill_slowdown_pct": 90.0,  # shared CPUs swing by half: a drill must lie clearly beyond that
}


def parse_params(data: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> BenchmarkParams:
    """Raises ParamsError. `defaults` are used for what `data` does not name."""
    try:
        return BenchmarkParams.model_validate({**(defaults or {}), **data})
    except ValidationError as error:
        raise ParamsError("; ".join(_explain(problem) for problem in error.errors(include_url=False)[:5])) from None


def _explain(problem: Any) -> str:
    name = str(problem["loc"][0]) if problem["loc"] else ""
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not name:
        return message
    if problem["type"] == "extra_forbidden":
        return f"{name} is not a parameter: choose from {', '.join(BenchmarkParams.model_fields)}"
    allowed = _allowed(name)
    advice = f"; allowed: {allowed}" if allowed and problem["type"] != "value_error" else ""
    return f"{name} is {problem['input']!r:.120}: {message}{advice}"


def _allowed(name: str) -> str:
    schema = form()[name]
    schema = {**schema, **schema.get("items", {})}
    if "enum" in schema:
        return ", ".join(str(choice) for choice in schema["enum"])
    if "pattern" in schema:
        return "a Kubernetes node name (lower-case letters, digits, '-' and '.')"
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    return f"{low} to {high}" if low is not None and high is not None else ""


def form(defaults: Mapping[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Field name -> keyword arguments of Airflow's `Param`: a JSON Schema, with default, section, title and help."""
    schema = BenchmarkParams.model_json_schema()
    values = parse_params(defaults or {}).model_dump(mode="json")
    fields: dict[str, dict[str, Any]] = {}
    for name, prop in schema["properties"].items():
        flat = _flatten(prop, schema.get("$defs", {}))
        flat["description_md"] = flat.pop("description")
        flat["default"] = values[name]
        flat["title"] = BenchmarkParams.model_fields[name].title
        if name == "model":
            flat["enum"] = list(MODELS)
        fields[name] = flat
    return fields


def _flatten(prop: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """Airflow's form wants `type` and `enum` in place, not references and `anyOf`."""
    flat: dict[str, Any] = {k: v for k, v in prop.items() if k not in ("$ref", "anyOf", "default", "items")}
    if "$ref" in prop:
        target = defs[prop["$ref"].rsplit("/", 1)[-1]]
        flat |= {"type": target["type"], "enum": target["enum"]}
    if "anyOf" in prop:
        real = next(option for option in prop["anyOf"] if option.get("type") != "null")
        flat |= _flatten(real, defs)
        flat["type"] = [real["type"], "null"]
    if "items" in prop:
        flat["items"] = _flatten(prop["items"], defs)
        if "enum" in flat["items"]:
            flat["examples"] = flat["items"]["enum"]  # Airflow draws a multi-select from `examples`
    return flat
