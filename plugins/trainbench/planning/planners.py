"""The planner of each kind of campaign: the defaults of its form, and of a trial on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import LOCAL_DEFAULTS, BenchmarkParams, parse_params
from trainbench.params.variants import DISK
from trainbench.planning.nodes import Fleet
from trainbench.planning.plan import Plan, make_plan

# The nightly check: work bounded by the GPU, not the host, on every GPU by itself and on all of a node together. ddp
# launches each kernel from the host, which limits it at 512 tokens (standard deviation 6 %; at 1,024 0.05 %).
# Few steps of warm-up and windows bounded in time end it in about a minute, cold start included.
NIGHT: Mapping[str, Any] = {
    "preset": "tuned",
    "strategies": ["independent", "ddp"],
    "multi_gpu_seq_length": 1024,
    "warmup_steps": 10,
    "max_window_s": 5.0,
}
# In a trial without a GPU every node is one process, and `tuned` compiles nothing there.
LOCAL_NIGHT: Mapping[str, Any] = {"preset": "as_users_run", "strategies": ["independent"]}
STRATEGIES: Mapping[str, Any] = {
    "model": "tier-a",
    "recipe": "full",
    "preset": "tuned",
    "strategies": ["single", "ddp", "fsdp", "zero2", "zero3"],
    "gpus_per_node": 8,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 4,
    "seq_length": 2048,
    "optimizer": "adamw_torch",
    "gradient_checkpointing": False,
}
LOCAL_STRATEGIES: Mapping[str, Any] = {
    "strategies": ["single", "ddp", "fsdp"],
    "world_sizes": [1, 2],
    "gpus_per_node": 1,
}
# The baseline of the published benchmarking guide.
CONFIGURATIONS: Mapping[str, Any] = {
    "preset": "as_users_run",
    "micro_batch_size": 4,
    "seq_length": 1024,
    "recipe": "qlora",
    "lora_rank": 16,
    "optimizer": "paged_adamw_8bit",
    "gradient_checkpointing": True,
    "precision": "bf16",
    "rounds": 3,
}
# Two rounds of the guide's six configurations: about two minutes on two CPU cores.
LOCAL_CONFIGURATIONS: Mapping[str, Any] = {
    "variants": ["LoRA r8", "seq 512", "seq 512 + batch 8", "checkpointing off", DISK],
    "variant_data_folder": "data",  # within the pod's own folder
    "data_num_samples": 256,
    "micro_batch_size": 4,
    "seq_length": 1024,
    "recipe": "qlora",  # the variants change its adapters
    "gradient_checkpointing": True,
    "warmup_steps": 1,
    "measured_steps": 3,
    "max_measured_steps": 4,
    "rounds": 2,
}
SURVEY: Mapping[str, Any] = {
    "micro_batch_size": "auto",
    "seq_length": 1024,
    "strategies": ["single", "ddp"],
    "world_sizes": [1],
}
# About one minute on two CPU cores.
LOCAL_SURVEY: Mapping[str, Any] = {
    "models": ["tiny", "encoder-decoder"],
    "recipes": ["full", "lora", "qlora"],
    "micro_batch_size": 4,
    "seq_length": 64,
    "warmup_steps": 1,
    "measured_steps": 2,
    "max_measured_steps": 4,
    "rounds": 1,
    "epoch_samples": 10_000,
}


# A short training after the sweep: enough steps for the CUDA graph.
INTERCONNECT: Mapping[str, Any] = {
    "model": "tier-a",
    "recipe": "full",
    "preset": "tuned",
    "strategies": ["ddp"],
    "micro_batch_size": 1,
    "seq_length": 2048,
    "optimizer": "adamw_torch",
    "gradient_checkpointing": False,
    "warmup_steps": 14,
    "measured_steps": 10,
    "max_measured_steps": 20,
    "repeats": 1,
    "timeout_s": 600.0,
}
# Processes of one machine take each other's time: only a group that fails, or nearly stands still, is bad.
LOCAL_INTERCONNECT: Mapping[str, Any] = {
    "gpus_per_node": 1,
    "link_top_bytes": 2**20,
    "link_slower_pct": 90.0,
    "measured_steps": 3,
    "max_measured_steps": 3,
    "repeats": 1,
}


class Planner(NamedTuple):
    """A kind of campaign with its form's defaults. `local_defaults` override them in a trial without a GPU."""

    kind: CampaignKind
    defaults: Mapping[str, Any]
    local_defaults: Mapping[str, Any]

    def starts_with(self, *, locally: bool) -> dict[str, Any]:
        return {**self.defaults, **({**LOCAL_DEFAULTS, **self.local_defaults} if locally else {})}

    def params(self, values: Mapping[str, Any], *, locally: bool) -> BenchmarkParams:
        """The checked parameters. Raises ParamsError."""
        return parse_params(values, self.starts_with(locally=locally))

    def make(self, params: BenchmarkParams, fleet: Fleet, campaign_id: str) -> Plan:
        """The plan. Raises PlanError."""
        return make_plan(params, fleet, campaign_id, self.kind)


_ALL = (
    Planner(CampaignKind.NODES, NIGHT, LOCAL_NIGHT),
    Planner(CampaignKind.STRATEGIES, STRATEGIES, LOCAL_STRATEGIES),
    Planner(CampaignKind.CONFIGURATIONS, CONFIGURATIONS, LOCAL_CONFIGURATIONS),
    Planner(CampaignKind.HARDWARE, SURVEY, LOCAL_SURVEY),
    Planner(CampaignKind.INTERCONNECT, INTERCONNECT, LOCAL_INTERCONNECT),
)
PLANNERS: Mapping[CampaignKind, Planner] = {planner.kind: planner for planner in _ALL}
