"""Makes the spec of one run from the params: its work, placement and ids."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.flops import lora_targets
from bench_image.contract.links import LinkSweep
from bench_image.contract.options import SINGLE_GPU, Recipe, Strategy
from bench_image.contract.spec import WHOLE_GPU, Drill, Identity, Measurement, Placement, RunSpec
from bench_image.contract.work import AUTO, PRESET_SETTINGS, Device, DiskData, Work, WorkSettings
from trainbench.params.campaign_params import BenchmarkParams

QUICK = Measurement(warmup_steps=3, measured_steps=5, max_measured_steps=5, max_window_s=2.0, repeats=1)


def spec_of(
    params: BenchmarkParams,
    strategy: Strategy,
    nodes: Sequence[str],
    gpus_per_node: int,
    campaign_id: str,
    round_: int = 1,
    gpu_resource: str = WHOLE_GPU,
    link_sweep: LinkSweep | None = None,
) -> RunSpec:
    """The run of `strategy` on `nodes`, node rank 0 first. Raises pydantic's ValidationError."""
    work = _work(params, strategy)
    placement = Placement(
        strategy=strategy,
        nodes=len(nodes),
        gpus_per_node=gpus_per_node,
        gpu_resource=gpu_resource if work.device is Device.CUDA else WHOLE_GPU,
    )
    measurement = QUICK if params.quick else params.measurement
    # A readable group id of the work. Independent GPUs do the same work whatever their number.
    digest = fingerprint(work, placement, measurement, *filter(None, [link_sweep]))
    size = "" if placement.strategy is Strategy.INDEPENDENT else f"-{placement.nodes}x{placement.gpus_per_node}"
    shape = f"b{work.micro_batch_size}-s{work.seq_length}"
    what = work.model if work.own_job else f"{work.model}-{work.recipe}-{placement.strategy}"
    group_id = identifier(f"{what}{size}{'' if work.own_job else f'-{shape}'}-{digest}", 150)
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
        link_sweep=link_sweep,
        timeout_s=params.timeout_s,
        drill=Drill(slowdown_pct=params.drill_slowdown_pct) if params.drill_node in nodes else None,
    )


def impossible_reason(strategy: Strategy, params: BenchmarkParams) -> str | None:
    """Why this strategy cannot run anywhere with these params."""
    if strategy is Strategy.OWN:
        return None
    job, seq_length = params.work, _seq_length(params, strategy)
    if seq_length > job.shape.max_positions:
        return (
            f"seq_length {seq_length} is beyond the {job.shape.max_positions} positions of "
            f"'{job.model}': choose a shorter one"
        )
    return job.unsupported(strategy)


def _seq_length(params: BenchmarkParams, strategy: Strategy) -> int:
    """Tokens per sample; on several GPUs at most the model's positions."""
    if strategy in SINGLE_GPU or params.multi_gpu_seq_length is None:
        return params.work.seq_length
    return min(params.multi_gpu_seq_length, params.work.shape.max_positions)


def _work(params: BenchmarkParams, strategy: Strategy) -> Work:
    """The work of this strategy's ranks: empty settings come from the preset; parts that the recipe lacks are None."""
    job = params.work
    if strategy is Strategy.OWN:
        return Work(
            device=job.device,
            model=job.own_job.name,
            recipe=Recipe.FULL,
            micro_batch_size=job.own_job.samples_per_step or AUTO,
            gradient_checkpointing=False,
            own_job=job.own_job,
        )
    settings = {name: getattr(job, name) for name in WorkSettings.model_fields}
    decided = {name: own for name, own in PRESET_SETTINGS[job.preset].items() if settings[name] is None}
    lora = job.lora.model_copy(update={"targets": lora_targets(job.shape, job.lora_targets)})
    return Work(
        **settings | decided | {"seq_length": _seq_length(params, strategy)},
        lora=None if job.recipe is Recipe.FULL else lora,
        quantisation=job.quantisation if job.recipe is Recipe.QLORA else None,
        data="memory" if job.data_folder is None else DiskData(folder=job.data_folder, **dict(job.data)),
    )


def run_id(group_id: str, node: str, round_: int) -> str:
    return identifier(f"{group_id}-{node}-r{round_}", 200)


def identifier(text: str, max_length: int) -> str:
    """`text` in lower case with only letters, digits, '.', '_' and '-'; a long text becomes its start and a hash."""
    clean = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")
    if len(clean) <= max_length and clean:
        return clean
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{clean[: max_length - 9].strip('._-')}-{digest}".lstrip("-")
