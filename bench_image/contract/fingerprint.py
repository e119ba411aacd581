"""Fingerprints: runs are comparable when the fingerprints of their work are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic_core import to_jsonable_python

from bench_image.contract.model_shapes import MODELS
from bench_image.contract.options import Strategy
from bench_image.contract.spec import RunSpec

# What may differ between runs that are still the same work; every other field of the spec enters the fingerprint.
NOT_WORK = frozenset({
    "schema_version", "campaign_id", "run_id", "group_id", "node", "peers", "round",
    "timeout_s", "telemetry_interval_s", "drill",
})  # fmt: skip


# What may differ between the rows of a comparison besides: the thing compared, and how many GPUs do it.
ACROSS_STRATEGIES = frozenset({"strategy", "nodes", "gpus_per_node"})
# How long and how often is measured does not change what one step does.
HOW_MEASURED = frozenset({
    "warmup_steps", "measured_steps", "max_measured_steps", "target_half_width_pct", "max_window_s", "repeats",
})  # fmt: skip


def fingerprint(work: RunSpec, besides: frozenset[str] = frozenset()) -> str:
    """12 hex digits that change whenever anything that changes the work changes; fields in `besides` may differ.

    Independent ranks do equal work however many they are: `gpus_per_node` does not enter then.
    """
    if work.strategy is Strategy.INDEPENDENT:
        besides |= {"gpus_per_node"}
    return _digest(besides, tuple([getattr(work, name) for name in _work_fields(besides)]))


@lru_cache(maxsize=1000)
def _digest(besides: frozenset[str], values: tuple[Any, ...]) -> str:
    """Thousands of runs of one campaign do the same work, and every report asks for it many times."""
    fields = dict(zip(_work_fields(besides), values, strict=True))
    canonical = json.dumps(to_jsonable_python(in_one_form(fields)), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


@lru_cache
def _work_fields(besides: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in RunSpec.model_fields if name not in NOT_WORK | besides)


def in_one_form(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec with its model by shape: a known model and its dimensions written out are one work, and so
    are equal dimensions under two names.
    """
    if (dimensions := fields.get("dimensions")) is None:
        return dict(fields)
    known = next((name for name, shape in MODELS.items() if shape == dimensions), None)
    return {**fields, "model": known, "dimensions": None if known else dimensions}
