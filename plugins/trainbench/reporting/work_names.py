"""Names of works for a reader: model, recipe, strategy, batch and hardware."""

from __future__ import annotations

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Clock
from bench_image.contract.work import AUTO, Device
from trainbench.core.formats import count
from trainbench.results.campaign import Campaign
from trainbench.results.readings import gpu_name

BY_CPU_TIME = "CPU (samples per second of the process' CPU time)"


def group_name(campaign: Campaign, group_id: str) -> str:
    """The work and the hardware of a group: "mistral-7b qlora, single, batch 8 x 512 tokens, NVIDIA A10"."""
    of_group = (r for r in campaign.results if r.spec.identity.group_id == group_id)
    first = next(of_group, None)
    if first is None:
        return group_id
    result = first if first.chosen else next((r for r in of_group if r.chosen), first)
    gpu = next((g.gpu_name for g in campaign.groups if g.group_id == group_id and g.gpu_name), None)
    return work_name(campaign, result, gpu)


def work_name(campaign: Campaign, result: RunResult, gpu: str | None = None) -> str:
    """The work and hardware of one run, after its label. `gpu`: its GPU where the run does not report one."""
    spec = result.spec
    ran = result.effective_spec.work.micro_batch_size
    is_chosen = spec.work.micro_batch_size == AUTO and result.chosen and not spec.work.own_job
    size = spec.work.size_with(f"{AUTO} ({ran})" if is_chosen else ran)
    gpus = (
        f" on {count(spec.placement.world_size, spec.work.device.rank_noun)}" if spec.placement.world_size > 1 else ""
    )
    label = campaign.labels.get(spec.identity.group_id, "")
    by = "" if spec.work.own_job else f", {spec.placement.strategy}"
    work = f"{spec.work.name}{by}{gpus}{f', {size}' if size else ''}"
    named = f"{label}: {work}" if label and not work.startswith(label) else work
    on_cpu = BY_CPU_TIME if result.performance.clock is Clock.PROCESS_CPU else "CPU"
    return f"{named}, {on_cpu if spec.work.device is Device.CPU else gpu or gpu_name(result) or 'GPU unknown'}"
