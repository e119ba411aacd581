"""metrics.csv: one row for each run, failed ones included. An unknown number is an empty cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import chain

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.result import RunResult
from bench_image.contract.work import AUTO
from trainbench.comparison.entries import value_text
from trainbench.comparison.scaling import Efficiency, efficiencies
from trainbench.core.csv_cells import Cell, lines
from trainbench.figure_catalogue.run_figures import run_values
from trainbench.results.campaign import Campaign
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.readings import gpu_name

# The columns that scripts of existing users read, in their order; ours follow.
FLAT_ROW = (
    "strategy", "world_size", "rank", "seq_len", "tier", "steps", "per_device_batch", "grad_accum", "tokens_per_sec",
    "mean_step_time_sec", "mean_loss", "peak_vram_gb", "h2d_gbps_per_gpu", "scaling_efficiency_pct",
)  # fmt: skip
_TIER = re.compile(r"(?:decoder-)?tier-([a-z])")


def metrics_csv(campaign: Campaign, parts: FaultIsolation | None = None) -> str:
    rows = list(metric_rows(campaign, parts))
    header = tuple(dict.fromkeys(name for row in chain([FLAT_ROW], rows) for name in row))
    return lines([header, *([row.get(name) for name in header] for row in rows)])


def metric_rows(campaign: Campaign, parts: FaultIsolation | None = None) -> Iterator[dict[str, Cell]]:
    """Column -> value for each run, skipped ones included; units end the columns' names. A run whose row cannot be made
    has none; `parts` takes the finding.
    """
    parts = parts or FaultIsolation()

    def label(of: str | None) -> dict[str, Cell]:
        """The work's name in the form, in campaigns that name works."""
        return {"label": of} if campaign.labels else {}

    scaling = efficiencies(campaign.results, with_bases=True)
    for result, efficiency in zip(campaign.results, scaling, strict=True):
        row = parts.attempt("computing its figures", result.spec.identity.run_id, partial(_row, result, efficiency))
        if row is not None:
            yield row | label(campaign.labels.get(result.spec.identity.group_id))
    for skipped in campaign.skipped:
        for node in skipped.nodes or (None,):
            yield label(skipped.label) | {
                "strategy": skipped.strategy.value if skipped.strategy else skipped.what,
                "world_size": skipped.gpus_per_node,
                "campaign_id": campaign.campaign_id,
                "group_id": skipped.group_id,
                "node": node,
                "status": skipped.state,
                "error": skipped.reason,
                "model": skipped.model,
                "recipe": skipped.recipe.value if skipped.recipe else None,
            }


def _row(result: RunResult, efficiency: Efficiency | None) -> dict[str, Cell]:
    """One row: the flat columns first, then identity, figures, prices, versions, work and choices of the run. Rows with
    one `work_fingerprint` did equal work.
    """
    identity, placement, context = result.spec.identity, result.spec.placement, result.context
    asked, work, chosen = result.spec.work, result.effective_spec.work, result.chosen
    tier = _TIER.fullmatch(work.model)
    setting: dict[str, Cell] = {
        "strategy": placement.strategy,
        "world_size": placement.world_size,
        "rank": 0,
        "seq_len": work.seq_length,
        "tier": tier[1].upper() if tier else work.model,
        "steps": result.performance.measured_steps,
        "per_device_batch": None if work.micro_batch_size == AUTO else work.micro_batch_size,
        "grad_accum": work.gradient_accumulation_steps,
        "peak_vram_gb": result.memory.peak_during_training if result.memory.kind == "cuda_allocated" else None,
    }
    figures: dict[str, Cell] = {
        **{each.csv or each.name: value for each, value in run_values(result, efficiency).items()},
        "scaling_base_world_size": efficiency.base_world_size if efficiency else None,
        "scaling_base_strategy": efficiency.base_strategy if efficiency else None,
        "scaling_base_elsewhere": efficiency.elsewhere if efficiency else None,
    }
    flat = setting | figures
    row = {
        **{name: flat[name] for name in FLAT_ROW},
        **{name: getattr(identity, name) for name in ("campaign_id", "run_id", "group_id", "node", "round")},
        "status": result.status,
        "error": f"{result.error.kind}: {result.error.message}" if result.error else None,
        **{name: getattr(asked, name) for name in ("model", "recipe", "precision", "optimizer", "preset", "device")},
        "gpu_name": gpu_name(result),
        "started_at": result.started_at.isoformat(),
        "finished_at": result.finished_at.isoformat(),
        "is_drill": result.spec.drill is not None,
        "num_gpus": len(context.gpus) if context else None,
        **figures,
        "memory_kind": result.memory.kind,
        "price_source": result.cost.price_source,
        "price_as_of": result.cost.price_as_of,
        "driver": context.driver if context else None,
        "cuda": context.cuda if context else None,
        "torch": context.libraries.get("torch") if context else None,
        "image": context.image if context else None,
        "pod_template": context.pod_template if context else None,
        "work_fingerprint": fingerprint(work),
        "weights": work.weights,
        "data": "memory" if work.data == "memory" else "disk",
        "micro_batch_size_asked": asked.micro_batch_size,
        "gradient_checkpointing_asked": value_text(asked.gradient_checkpointing),
        "micro_batch_size_chosen": chosen.micro_batch_size if chosen else None,
        "gradient_checkpointing_chosen": chosen.gradient_checkpointing if chosen else None,
        "chosen_why": chosen.why if chosen else None,
        "execution": "; ".join(f"{name}: {value}" for name, value in chosen.execution.items()) if chosen else None,
        "trainable_parameters": result.parameters.trainable,
        "total_parameters": result.parameters.total,
    }
    return row | dict.fromkeys(OF_OUR_LOOP) if work.own_job else row


OF_OUR_LOOP = (  # what no command of the user's own is asked for, though its spec has the defaults
    "seq_len", "per_device_batch", "grad_accum", "recipe", "precision", "optimizer", "preset", "weights", "data",
    "micro_batch_size_asked", "gradient_checkpointing_asked", "gradient_checkpointing_chosen",
)  # fmt: skip
