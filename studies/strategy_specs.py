"""Plans the strategy comparison of one machine: every strategy and number of GPUs, for several jobs of equal work.

    PYTHONPATH=.:plugins:studies python studies/strategy_specs.py CAMPAIGN_ID OUTPUT_DIR

Writes one spec per run; their names sort in the order to run them.

One GPU first, then all; then two pods on the machine, the smallest case of several nodes, once with NCCL's fastest way
and once by TCP alone, in a campaign of its own; two GPUs last. `run_specs.py` runs them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_image.contract.options import Strategy
from bench_image.contract.spec import RunSpec
from run_specs import TCP_CAMPAIGN
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet, named_nodes
from trainbench.planning.plan import make_plan

NODE, SECOND_POD = "h200-4", "h200-4-second-pod"
ALL, HALF = 4, 2
# ddp is captured as a CUDA graph after 11 steps (contract/preset_switches.py).
COMMON: dict[str, Any] = {
    "nodes": [NODE],
    "strategies": [each.value for each in Strategy if each not in (Strategy.INDEPENDENT, Strategy.OWN)],
    "gpus_per_node": ALL, "preset": "tuned", "seq_length": 2048, "optimizer": "adamw_torch",
    "gradient_checkpointing": False, "warmup_steps": 14, "measured_steps": 5, "max_measured_steps": 5, "repeats": 2,
    "timeout_s": 120.0, "force": True,
}  # fmt: skip
TIER_A = {"model": "tier-a", "recipe": "full", "micro_batch_size": 1, "gradient_accumulation_steps": 4}
FULL = {"model": "mistral-7b", "recipe": "full", "micro_batch_size": 4}
LORA = FULL | {"recipe": "lora"}
FP8 = {"precision": "fp8"}  # the plan leaves out the strategies that cannot
JOBS: list[dict[str, Any]] = [
    TIER_A | {"warmup_steps": 20, "measured_steps": 25, "max_measured_steps": 25},
    FULL, LORA, FULL | {"recipe": "qlora"}, FULL | FP8, LORA | FP8,
]  # fmt: skip
FULL_8 = FULL | {"micro_batch_size": 8, "strategies": ["fsdp"]}  # the most that fits: fsdp's best rate
# Little to exchange, so that TCP ends in time.
TWO_PODS: list[dict[str, Any]] = [TIER_A | {"strategies": ["ddp", "fsdp"]}, LORA | {"strategies": ["ddp"]}]


def planned(campaign_id: str) -> Iterator[RunSpec]:
    """All runs, the most important first."""
    for size, jobs in ((1, JOBS), (ALL, [*JOBS, FULL_8])):
        yield from _specs(jobs, campaign_id, world_sizes=[size])
    for campaign in (campaign_id, campaign_id + TCP_CAMPAIGN):
        pods = {"nodes": [NODE, SECOND_POD], "gpus_per_node": HALF, "world_sizes": [ALL]}
        yield from _specs(TWO_PODS, campaign, **pods)
    yield from _specs(JOBS, campaign_id, world_sizes=[HALF])


def _specs(jobs: list[dict[str, Any]], campaign_id: str, **placement: Any) -> Iterator[RunSpec]:
    for job in jobs:
        params = parse_params(COMMON | job | placement)
        yield from make_plan(
            params, Fleet(nodes=named_nodes(params.nodes or [])), campaign_id, CampaignKind.STRATEGIES
        ).specs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign_id", metavar="CAMPAIGN_ID", help="lower-case letters, digits, '.', '_' and '-'")
    parser.add_argument("output", type=Path, metavar="OUTPUT_DIR")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for number, spec in enumerate(planned(arguments.campaign_id)):
        name = f"{number:02d}-{spec.identity.campaign_id}-{spec.identity.run_id}"
        (arguments.output / f"{name}.json").write_text(spec.model_dump_json(indent=1))


if __name__ == "__main__":
    main()
