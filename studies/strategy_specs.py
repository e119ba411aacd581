"""Plans the strategy comparison of one machine: every strategy and number of GPUs, for several jobs of equal work.

python studies/strategy_specs.py CAMPAIGN_ID OUTPUT_DIR     -> one spec per run, in the order to run them
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_image.contract.options import SINGLE_GPU, Strategy
from bench_image.contract.spec import RunSpec
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet, named_nodes
from trainbench.planning.plan import make_plan

NODE = "h200-4"
WORLD_SIZES = (4, 2, 1)
COMMON: dict[str, Any] = {
    "nodes": [NODE], "preset": "tuned", "seq_length": 2048, "optimizer": "adamw_torch", "gradient_checkpointing": False,
    "warmup_steps": 5, "measured_steps": 5, "max_measured_steps": 5, "repeats": 2, "timeout_s": 120.0, "force": True,
}  # fmt: skip
FULL_8 = {"model": "mistral-7b", "recipe": "full", "micro_batch_size": 8}  # the most that fits: fsdp's best rate
JOBS: list[dict[str, Any]] = [
    {"model": "tier-a", "recipe": "full", "micro_batch_size": 1, "gradient_accumulation_steps": 4}
    | {"warmup_steps": 20, "measured_steps": 25, "max_measured_steps": 25},
    {"model": "mistral-7b", "recipe": "full", "micro_batch_size": 4},
    {"model": "mistral-7b", "recipe": "lora", "micro_batch_size": 4},
    {"model": "mistral-7b", "recipe": "qlora", "micro_batch_size": 4},
]
GANGS = tuple(strategy for strategy in Strategy if strategy not in SINGLE_GPU)


def planned(campaign_id: str) -> Iterator[RunSpec]:
    """By number of GPUs, so that runs of one size are neighbours."""
    for size in WORLD_SIZES:
        for job in JOBS:
            strategies = [Strategy.SINGLE] if size == 1 else GANGS
            form = COMMON | job | {"strategies": [strategy.value for strategy in strategies], "gpus_per_node": size}
            yield from _specs(form, campaign_id)
    best = COMMON | FULL_8 | {"strategies": [Strategy.FSDP.value], "gpus_per_node": max(WORLD_SIZES)}
    yield from _specs(best, campaign_id)


def _specs(form: dict[str, Any], campaign_id: str) -> tuple[RunSpec, ...]:
    return make_plan(parse_params(form), Fleet(nodes=named_nodes([NODE])), campaign_id).specs


def main() -> None:
    campaign_id, output = sys.argv[1], Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    for number, spec in enumerate(planned(campaign_id)):
        (output / f"{number:02d}-{spec.identity.run_id}.json").write_text(spec.model_dump_json(indent=1))


if __name__ == "__main__":
    main()
