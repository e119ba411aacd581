"""By which means a preset works, setting by setting."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract import Device, Lora, Precision, Preset, Recipe, Strategy
from bench_image.presets import compiles, fuses
from tests.builders import make_spec


@pytest.mark.parametrize(
    ("changes", "compiled", "fused"),
    [
        ({}, True, True),
        ({"recipe": Recipe.LORA}, True, True),
        ({"recipe": Recipe.FULL}, True, False),
        ({"preset": Preset.AS_USERS_RUN}, False, False),
        ({"device": Device.CPU}, False, False),
        ({"strategy": Strategy.DDP, "gpus_per_node": 2}, True, True),
        ({"strategy": Strategy.ZERO2, "gpus_per_node": 2}, True, True),
        ({"strategy": Strategy.FSDP, "gpus_per_node": 2}, True, False),
        ({"strategy": Strategy.ZERO3, "gpus_per_node": 2}, False, False),
        ({"lora": Lora(dropout=0.1)}, True, False),
        ({"precision": Precision.FP16}, True, False),
    ],
)
def test_tuned_compiles_and_fuses_where_it_can(changes: dict[str, Any], compiled: bool, fused: bool) -> None:
    spec = make_spec(**{"preset": Preset.TUNED} | changes)

    assert (compiles(spec), fuses(spec)) == (compiled, fused)
