"""Params -> the spec of one run: what it trains, where, and under which ids."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Literal

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.flops import lora_targets
from bench_image.contract.options import SINGLE_GPU, Optimizer, Recipe, Strategy, unsupported
from bench_image.contract.spec import Drill, Identity, Measurement, Placement, RunSpec
from bench_image.contract.work import DiskData, Lora, Preset, Quantisation, Work
from trainbench.params.campaign_params import BenchmarkParams

# What each preset trains with unless the parameters say otherwise.
OPTIMIZERS = {Preset.AS_USERS_RUN: Optimizer.PAGED_ADAMW_8BIT, Preset.TUNED: Optimizer.ADAMW_TORCH}
CHECKPOINTING: dict[Preset, Any] = {Preset.AS_USERS_RUN: True, Preset.TUNED: "auto"}
QUICK = Measurement(warmup_steps=3, measured_steps=5, max_measured_steps=5, max_window_s=2.0, repeats=1)


def spec_of(
    params: BenchmarkParams,
    strategy: Strategy,
    nodes: Sequence[str],
    gpus_per_node: int,
    campaign_id: str,
    round_: int = 1,
) -> RunSpec:
    """The run of `strategy` on `nodes`, node rank 0 first. Raises pydantic's ValidationError for what cannot be."""
    work = _work(params, strategy)
    placement = Placement(strategy=strategy, nodes=len(nodes), gpus_per_node=gpus_per_node)
    measurement = _measurement(params)
    group_id = _group_id(work, placement, fingerprint(work, placement, measurement))
    return RunSpec(
        identity=Identity(
            campaign_id=campaign_id,
            run_id=run_id(group_id, nodes[0], round_),
            group_id=group_id,
            node=nodes[0],
            peers=tuple(nodes[1:]),
            round=round_,
        ),
        work=work,
        placement=placement,
        measurement=measurement,
        timeout_s=params.timeout_s,
        drill=Drill(slowdown_pct=params.drill_slowdown_pct) if params.drill_node in nodes else None,
    )


def impossible(strategy: Strategy, params: BenchmarkParams) -> str | None:
    """Why this strategy cannot run anywhere with these params."""
    seq_length = _seq_length(params, strategy)
    if seq_length > params.shape.max_positions:
        return (
            f"seq_length {seq_length} is beyond the {params.shape.max_positions} positions of "
            f"'{params.model}': choose a shorter one"
        )
    return unsupported(strategy, params.recipe, params.precision, _optimizer(params), params.shape.family)


def _seq_length(params: BenchmarkParams, strategy: Strategy) -> int:
    """Tokens per sample; over several GPUs no more than the model has positions."""
    if strategy in SINGLE_GPU or params.multi_gpu_seq_length is None:
        return params.seq_length
    return min(params.multi_gpu_seq_length, params.shape.max_positions)


def _optimizer(params: BenchmarkParams) -> Optimizer:
    return params.optimizer or OPTIMIZERS[params.preset]


def _lora(params: BenchmarkParams) -> Lora | None:
    if params.recipe is Recipe.FULL:
        return None
    return Lora(
        rank=params.lora_rank,
        alpha=params.lora_alpha,
        dropout=params.lora_dropout,
        targets=lora_targets(params.shape, params.lora_targets),
    )


def _data(params: BenchmarkParams) -> Literal["memory"] | DiskData:
    if params.data_folder is None:
        return "memory"
    return DiskData(folder=params.data_folder, num_samples=params.data_num_samples, num_shards=params.data_num_shards)


def _work(params: BenchmarkParams, strategy: Strategy) -> Work:
    checkpointing = params.gradient_checkpointing
    return Work(
        model=params.model,
        dimensions=params.dimensions,
        weights=params.weights,
        recipe=params.recipe,
        device=params.device,
        micro_batch_size=params.micro_batch_size,
        gradient_accumulation_steps=params.gradient_accumulation_steps,
        seq_length=_seq_length(params, strategy),
        precision=params.precision,
        optimizer=_optimizer(params),
        gradient_checkpointing=CHECKPOINTING[params.preset] if checkpointing is None else checkpointing,
        lora=_lora(params),
        quantisation=Quantisation(double=params.double_quantisation) if params.recipe is Recipe.QLORA else None,
        preset=params.preset,
        data=_data(params),
        seed=params.seed,
    )


def _measurement(params: BenchmarkParams) -> Measurement:
    if params.quick:
        return QUICK
    return Measurement(
        warmup_steps=params.warmup_steps,
        measured_steps=params.measured_steps,
        max_measured_steps=params.max_measured_steps,
        target_half_width_pct=params.target_half_width_pct,
        max_window_s=params.max_window_s,
        repeats=params.repeats,
    )


def _group_id(work: Work, placement: Placement, digest: str) -> str:
    """Of the work, readable; independent GPUs do the same work however many of them a node has."""
    size = "" if placement.strategy is Strategy.INDEPENDENT else f"-{placement.nodes}x{placement.gpus_per_node}"
    shape = f"b{work.micro_batch_size}-s{work.seq_length}"
    return identifier(f"{work.model}-{work.recipe}-{placement.strategy}{size}-{shape}-{digest}", 150)


def run_id(group_id: str, node: str, round_: int) -> str:
    return identifier(f"{group_id}-{node}-r{round_}", 200)


def identifier(text: str, max_length: int) -> str:
    """`text` in lower case with only letters, digits, '.', '_' and '-'; too long: its start and a hash of all of it."""
    clean = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")
    if len(clean) <= max_length and clean:
        return clean
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{clean[: max_length - 9].strip('._-')}-{digest}".lstrip("-")
