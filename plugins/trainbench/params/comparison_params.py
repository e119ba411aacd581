"""The parameters of the comparing DAGs: configurations, models, kinds of GPU, and prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from bench_image.contract.model_shapes import MODELS, known_name
from bench_image.contract.options import Recipe
from bench_image.contract.setting import setting
from trainbench.core.close_matches import did_you_mean
from trainbench.params.form_fields import FormParams, json_object
from trainbench.params.variants import DISK, VARIANTS
from trainbench.prices.quote import HOURS_PER_MONTH

Usd = Annotated[float, Field(gt=0, le=1e9)]


class ComparisonParams(FormParams):
    """The parameters that only `config_diagnosis` and `hardware_survey` have, in the form's order."""

    variants: tuple[str, ...] = setting(
        tuple(VARIANTS),
        "Configurations",
        "Configurations",
        "Each is the work below with one thing changed. The unchanged work is the baseline, which runs in every round.",
        min_length=1,
    )
    variant_data_folder: str = setting(
        "/scratch/data",
        "Configurations",
        f"Folder of '{DISK}'",
        "The folder of its shard files, as the pod sees it: on a local disk, NFS or a volume.",
        min_length=1,
        max_length=1000,
    )
    models: tuple[str, ...] = setting(
        ("mistral-7b", "llama2-13b", "encoder-decoder"),
        "Survey",
        "Models",
        "Each runs with each recipe on each kind of GPU. `encoder-decoder` is trained from scratch: only `full`.",
        min_length=1,
    )
    recipes: tuple[Recipe, ...] = setting(
        (Recipe.FULL, Recipe.LORA, Recipe.QLORA),
        "Survey",
        "Recipes",
        "Full fine-tuning, LoRA, or LoRA on 4-bit weights (QLoRA).",
        min_length=1,
    )
    nodes_per_gpu_type: int = setting(
        1,
        "Survey",
        "Nodes per kind of GPU",
        "The first nodes of each kind run. Nodes that you name all run, however many they are.",
        ge=1,
        le=1000,
    )
    baseline_gpu: str | None = setting(
        None,
        "Report",
        "Relative to",
        "The GPU with relative speed 1, by words of its name, such as `A100 80GB`. Empty: the fastest one.",
        min_length=1,
        max_length=100,
    )
    epoch_samples: int = setting(
        50_000, "Report", "Samples per epoch", "For the time of one epoch.", ge=1, le=1_000_000_000_000
    )
    budgets_usd: tuple[Usd, ...] = setting(
        (500.0, 2000.0, 5000.0, 15000.0),
        "Report",
        "Budgets (USD)",
        "For each budget the report shows what it buys, from measured rates and prices.",
        min_length=1,
        max_length=10,
    )
    purchase_usd: Annotated[Mapping[str, Usd], BeforeValidator(lambda value: json_object(value) or {})] = setting(
        {},
        "Report",
        "Purchase prices (USD)",
        'Price of one GPU with its share of the server, by words of its name: `{"A10": 3500, "H100": 30000}`. Without '
        "one the report takes the list price of the bare card, which exists for RTX cards only.",
    )
    used_hours_per_month: float = setting(
        365.0,
        "Report",
        "Use (hours per month)",
        "Hours of work of an owned GPU; a month has 730.",
        gt=0,
        le=HOURS_PER_MONTH,
    )
    life_months: float = setting(36.0, "Report", "Life (months)", "Months until an owned GPU is worth 0.", gt=0, le=240)
    opex_usd_per_gpu_hour: float = setting(
        0.0,
        "Report",
        "Running cost (USD per GPU-hour)",
        "Cost of an owned GPU per hour of work: power, space, staff.",
        ge=0,
        le=1000,
    )

    @field_validator("variants", "models")
    @classmethod
    def _known_once(cls, names: tuple[str, ...], info: Any) -> tuple[str, ...]:
        if info.field_name == "models":
            names = tuple(str(known_name(name)) for name in names)
        known = VARIANTS if info.field_name == "variants" else MODELS
        if unknown := [name for name in names if name not in known]:
            close = did_you_mean(unknown[0], known)
            raise ValueError(f"'{unknown[0]}' is not known{close}: choose from {', '.join(known)}")
        return _once(names)

    @field_validator("recipes")
    @classmethod
    def _recipes_once(cls, recipes: tuple[Recipe, ...]) -> tuple[Recipe, ...]:
        _once(tuple(recipe.value for recipe in recipes))
        return recipes


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"'{twice[0]}' is named twice: name each once")
    return names
