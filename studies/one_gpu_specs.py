"""Plans the runs behind the tables of one GPU in docs/performance.md, the most important first.

python studies/one_gpu_specs.py OUTPUT_DIR     -> one spec per run, in the order to run them
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench_image.contract.spec import RunSpec
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet, named_nodes
from trainbench.planning.plan import make_plan

CAMPAIGN, NODE = "one-gpu", "h200-1"
COMMON: dict[str, Any] = {
    "nodes": [NODE], "strategies": ["single"], "gpus_per_node": 1, "lora_targets": "all", "preset": "tuned",
    "optimizer": "adamw_torch", "gradient_checkpointing": False, "warmup_steps": 5, "repeats": 3, "timeout_s": 120.0,
    "force": True,
}  # fmt: skip
AS_USERS_RUN = {"preset": "as_users_run", "optimizer": "paged_adamw_8bit", "gradient_checkpointing": True}
QLORA = {"recipe": "qlora", "micro_batch_size": 8, "seq_length": 512}
LORA = {"recipe": "lora", "micro_batch_size": 8, "seq_length": 2048}
FULL = {"recipe": "full", "micro_batch_size": 8, "seq_length": 2048}
GPT2 = {"model": "gpt2", "micro_batch_size": 8, "seq_length": 1024, "warmup_steps": 15}
TIER_A = {"model": "tier-a", "recipe": "full", "micro_batch_size": 1, "seq_length": 2048, "warmup_steps": 20}
# Name -> what differs from COMMON, and the steps of a window.
JOBS: Mapping[str, tuple[dict[str, Any], int]] = {
    "users-qlora-1": (QLORA | AS_USERS_RUN, 5),
    "tuned-qlora-1": (QLORA, 10),
    "users-qlora-2": (QLORA | AS_USERS_RUN, 5),
    "tuned-qlora-2": (QLORA, 10),
    "lora": (LORA, 4),
    "lora-attention": (LORA | {"lora_targets": "attention"}, 4),
    "full": (FULL, 3),
    "full-fp8": (FULL | {"precision": "fp8"}, 4),
    "tier-a": (TIER_A | {"gradient_accumulation_steps": 4}, 40),
    "gpt2-full": (GPT2 | {"recipe": "full"}, 40),
    "gpt2-lora": (GPT2 | {"recipe": "lora"}, 40),
    "gpt2-full-users": (GPT2 | {"recipe": "full"} | {"preset": "as_users_run"}, 20),
    "qlora-attention": (QLORA | {"lora_targets": "attention"}, 10),
    "qlora-llama2": (QLORA | {"model": "llama2-7b"}, 10),
    "full-accumulation-4": (FULL | {"gradient_accumulation_steps": 4, "warmup_steps": 3}, 2),
}


def planned() -> Iterator[tuple[str, RunSpec]]:
    """Name and spec of each run, in the order of JOBS."""
    for name, (job, steps) in JOBS.items():
        form = COMMON | job | {"measured_steps": steps, "max_measured_steps": steps}
        (spec,) = make_plan(parse_params(form), Fleet(nodes=named_nodes([NODE])), CAMPAIGN).specs
        yield name, spec


def main() -> None:
    output = Path(sys.argv[1])
    output.mkdir(parents=True, exist_ok=True)
    for number, (name, spec) in enumerate(planned()):
        (output / f"{number:02d}-{name}.json").write_text(spec.model_dump_json(indent=1))


if __name__ == "__main__":
    main()
