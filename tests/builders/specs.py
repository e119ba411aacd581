"""Specs for tests: give only what your test is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.options import Recipe
from bench_image.contract.spec import Identity, Measurement, Placement, RunSpec
from bench_image.contract.work import Lora, Quantisation, Work

PARTS: Mapping[str, type[Frozen]] = {
    "identity": Identity, "work": Work, "placement": Placement, "measurement": Measurement,
}  # fmt: skip


SPEC_FIELDS = {*RunSpec.model_fields, *(name for part in PARTS.values() for name in part.model_fields)}


def spec_from(**fields: Any) -> RunSpec:
    """A spec from the fields of its parts; an unknown name is refused by RunSpec."""
    parts: dict[str, Any] = {}
    for name, part in PARTS.items():
        parts[name] = {field: fields.pop(field) for field in part.model_fields if field in fields}
    return RunSpec(**parts, **fields)


def fields_of(spec: RunSpec) -> dict[str, Any]:
    """The fields of the spec and of its parts, as `make_spec` and `make_result` take them, except node and round."""
    fields = dict(spec)
    parts = [dict(fields.pop(name)) for name in PARTS]
    return {name: v for part in (fields, *parts) for name, v in part.items() if name not in ("node", "round")}


def make_spec(**overrides: Any) -> RunSpec:
    """The node check's own configuration on one GPU. `overrides` are fields of the spec or of any of its parts; ids
    are derived from the rest unless given.
    """
    recipe = Recipe(overrides.get("recipe", Recipe.QLORA))
    fields: dict[str, Any] = {
        "campaign_id": "campaign-1",
        "node": "node-1",
        "model": "mistral-7b",
        "measured_steps": 50,
        "max_window_s": 5.0,
        "recipe": recipe,
        "lora": None if recipe is Recipe.FULL else Lora(),
        "quantisation": Quantisation() if recipe is Recipe.QLORA else None,
    } | overrides
    draft = spec_from(**{"group_id": "draft", "run_id": "draft"} | fields)
    work, identity = draft.work, draft.identity
    group_id = fields.setdefault("group_id", f"{work.model}-{recipe}-{draft.placement.strategy}-{draft.fingerprint}")
    fields.setdefault("run_id", f"{group_id}-{identity.node}-r{identity.round}")
    return spec_from(**fields)
