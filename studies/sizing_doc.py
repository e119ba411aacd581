"""Writes docs/internals/sizing.md: the memory formula against measured peaks, and the smallest GPU for each model."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.flops import lora_targets, num_parameters
from bench_image.contract.memory_estimate import (
    GPU_MEMORY_GIB,
    SIZED,
    USABLE_SHARE,
    keeps_unpacked,
    least,
    memory_need_bytes,
    smallest_gpu,
)
from bench_image.contract.model_shapes import MODELS
from bench_image.contract.options import Attention, Precision, Recipe
from bench_image.contract.parse import parse_result, parse_spec
from bench_image.contract.preset_switches import fuses_head, makes_product_anew, uses_compile, uses_fused_lora
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Lora
from committed import committed

ROOT = Path(__file__).resolve().parents[1]
# When memory_estimate.py was last brought into agreement with measurements; what came later tests it.
FITTED_UNTIL = datetime(2026, 11, 21, 12, 40, tzinfo=UTC)
MAX_ERROR_PCT = 10.0
TEXT = """\
# How much memory a run needs

`bench_image/contract/memory_estimate.py` predicts the peak that torch allocates on one GPU, before anything is
launched. The plan skips what cannot fit and says so; `auto` settings in a gang rely on it. This page is written by
`python studies/sizing_doc.py`; a test keeps it so.

GB are 1e9 bytes, GiB 2^30. {usable:.0%} of a GPU's memory counts as usable: ECC, the CUDA context, the buffers of NCCL
and cuBLAS and fragmentation take the rest. torch does not count states of the paged optimizer, which the driver may
move to the host: `trainbench estimate` and the smallest GPU below count them, measured peaks and the plan do not.

## Against measured peaks

{count} configurations on NVIDIA H200 and H100, in bf16 unless the recipe says otherwise:

{errors}

The memory of a compiled layer was counted by formula and adjusted to the fitted configurations, so their error is that
of a fit. So is that of eager attention and of full training in fp16, each adjusted to one run, and of `tuned` since its
head and loss are one operation: what libraries keep beside it was adjusted to the configurations below. The others were
measured after the formula was fixed: their error is that of a prediction. Runs of `tuned` from before say nothing about
today's, and are left out.

Beyond 10 %: {beyond}.
Where the error is negative, the run needs more than was predicted; the {margin:.0%} that do not count as usable
cover it.

{measured}

Sources: the `result.json` files, profiles and `peaks.json` under `docs/results/`. A peak hardly varies: of the three
configurations in `peaks.json` that other runs had measured before, two gave the same bytes and one 0.04 % less.

Not measured yet, so take them as estimates: `tuned` with fp8 on several GPUs, and on more than four; Mixtral, dense
models beyond 15B parameters, GPT-2 with the optimizers of 8 bit; without checkpointing fp16, fp32 and eager attention.
`studies/measure_peaks.py` measures these and more on one GPU, but zero3.

## The smallest GPU that fits

One GPU, micro-batch 1 of 2,048 tokens with gradient checkpointing, bf16, preset `tuned`, LoRA rank 16 on all linears,
8-bit AdamW. With the predicted need in GB. `-`: none of the GPUs below holds it alone; shard it (fsdp, zero3).

{smallest}

GPUs considered, with their memory in GiB by data sheet: {gpus}.
"""


class Row(NamedTuple):
    spec: RunSpec
    measured_bytes: int
    fitted: bool

    @property
    def name(self) -> str:
        spec = self.spec
        gpus = f"{spec.placement.world_size} GPU{'s' if spec.placement.world_size > 1 else ''}"
        work = spec.work
        job = f"{work.model} {work.recipe} {spec.placement.strategy} on {gpus}"
        return f"{job}, {work.micro_batch_size} x {work.seq_length}"

    @property
    def error_pct(self) -> float:
        return 100 * (memory_need_bytes(self.spec).total - self.measured_bytes) / self.measured_bytes


def measured_rows() -> list[Row]:
    """One for each configuration of the committed results: the first where it was measured several times, and fitted if
    the formula was fitted to any of them.
    """
    rows: dict[str, Row] = {}
    for row in (*_whole_runs(), *_profiled_steps(), *_peaks()):
        first = rows.setdefault(key(row.spec), row)
        rows[key(row.spec)] = first._replace(fitted=first.fitted or row.fitted)
    return sorted(
        rows.values(), key=lambda row: (row.spec.placement.world_size, row.spec.work.model, row.spec.work.recipe)
    )


def _whole_runs() -> Iterator[Row]:
    results = [parse_result(text.encode()) for text in committed("*/result.json").values()]
    for result in sorted(results, key=lambda result: result.started_at):
        if (
            result.memory.peak_allocated_bytes
            and result.chosen
            and not result.chosen.checkpointed_layers
            and by_todays_means(result.effective_spec, result.chosen.execution)
        ):
            spec = result.effective_spec
            fitted = result.started_at <= FITTED_UNTIL or _fitted_later(spec)
            yield Row(spec, result.memory.peak_allocated_bytes, fitted=fitted)


def _fitted_later(spec: RunSpec) -> bool:
    """Eager attention and full training in fp16: adjusted to their first runs, of 23 November. The runs beside plain
    loops repeat those to which the workspaces, and the layers of an encoder-decoder, were adjusted.
    """
    fp16 = spec.work.precision is Precision.FP16 and spec.work.recipe is Recipe.FULL
    return fp16 or spec.work.attention is Attention.EAGER or _beside_a_loop(spec)


def _beside_a_loop(spec: RunSpec) -> bool:
    return spec.identity.campaign_id == "small" and spec.identity.run_id != "full-8x2048"


def by_todays_means(spec: RunSpec, means: dict[str, str] | None) -> bool:
    """Whether a run by these means kept what a run of today keeps: adapters were not fused under fsdp at first, nor did
    4-bit weights stay unpacked, nor was zero3 compiled; head and loss were two operations, and backward had the product
    within an MLP. None: a profile or peak of that time.
    """
    if means is None:
        return not keeps_unpacked(spec, None) and not fuses_head(spec)
    fused, kept = "fused" in means.get("adapters", ""), means.get("unpacked weights", "").startswith("kept")
    compiled = means.get("compile", "off") != "off"
    later = ("head and loss" in means, "product within the MLP" in means)
    return (uses_compile(spec), uses_fused_lora(spec), keeps_unpacked(spec, None)) == (compiled, fused, kept) and (
        fuses_head(spec), makes_product_anew(spec)
    ) == later  # fmt: skip


def _profiled_steps() -> Iterator[Row]:
    for path, text in committed("*/profiles/*.json").items():
        profile = json.loads(text)
        spec = parse_spec(json.dumps(profile["spec"]))
        # Others were profiled with a part of the preset left out.
        if Path(path).stem == spec.identity.run_id and by_todays_means(spec, profile.get("execution")):
            yield Row(spec, round(profile["peak_allocated_gb"] * 1e9), fitted=True)


def _peaks() -> Iterator[Row]:
    """The peaks that `measure_peaks.py` wrote."""
    for text in committed("*/peaks.json").values():
        for row in json.loads(text)["rows"]:
            spec = parse_spec(json.dumps(row["spec"]))
            if row["peak_allocated_bytes"] and by_todays_means(spec, row.get("execution")):
                yield Row(spec, row["peak_allocated_bytes"], fitted=False)


def beyond(rows: Sequence[Row]) -> list[Row]:
    """Those whose error is larger than what is aimed at."""
    return [row for row in rows if abs(row.error_pct) > MAX_ERROR_PCT]


def key(spec: RunSpec) -> str:
    return fingerprint(spec.work, spec.placement)


def markdown_table(head: list[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def errors_table(rows: Sequence[Row]) -> str:
    """How far off the formula is, where it was fitted and where it was not."""
    parts = {
        "fitted": [row for row in rows if row.fitted],
        "measured afterwards": [row for row in rows if not row.fitted],
        "all": rows,
    }
    head = ["configurations", "number", "median error %", "largest error %", f"within {MAX_ERROR_PCT:g} %"]
    return markdown_table(head, (_error_cells(name, part) for name, part in parts.items() if part))


def _error_cells(name: str, rows: Sequence[Row]) -> list[str]:
    errors = [abs(row.error_pct) for row in rows]
    within = f"{len(rows) - len(beyond(rows))} of {len(rows)}"
    return [name, str(len(errors)), f"{statistics.median(errors):.1f}", f"{max(errors):.1f}", within]


def measured_table(rows: list[Row]) -> str:
    head = [
        "model", "recipe", "adapters", "preset", "strategy", "GPUs", "batch x tokens", "checkpointing", "optimizer",
        "fitted", "measured GB", "predicted GB", "error %",
    ]  # fmt: skip
    return markdown_table(head, (_measured_cells(row) for row in rows))


def _measured_cells(row: Row) -> list[str]:
    spec, need = row.spec, memory_need_bytes(row.spec).total
    adapters = "-"
    if spec.work.lora:
        adapters = "all" if spec.work.lora.targets == lora_targets(spec.work.shape, "all") else "attention"
    return [
        spec.work.model, _recipe(spec), adapters, spec.work.preset, spec.placement.strategy,
        str(spec.placement.world_size),
        _batch(spec), "on" if spec.work.gradient_checkpointing else "off", spec.work.optimizer,
        "yes" if row.fitted else "no", f"{row.measured_bytes / 1e9:.2f}", f"{need / 1e9:.2f}", f"{row.error_pct:+.1f}",
    ]  # fmt: skip


def _batch(spec: RunSpec) -> str:
    times = f", {spec.work.gradient_accumulation_steps} times" if spec.work.gradient_accumulation_steps > 1 else ""
    return f"{spec.work.micro_batch_size} x {spec.work.seq_length}{times}"


def _recipe(spec: RunSpec) -> str:
    """With what else the memory depends on, where it is not the usual."""
    work = spec.work
    others = [
        work.precision if work.precision is not Precision.BF16 else "",
        f"rank {work.lora.rank}" if work.lora and work.lora.rank != Lora().rank else "",
        f"{work.attention} attention" if work.attention else "",
        "compiled" if work.compile else "",
    ]
    return ", ".join([work.recipe, *filter(None, others)])


def smallest_table() -> str:
    head = ["model", "parameters", *(recipe.value for recipe in Recipe)]
    rows = []
    for model in SIZED:
        cells = [model, f"{num_parameters(MODELS[model]):,}"]
        for recipe in Recipe:
            spec = least(model, recipe)
            cells.append(f"{smallest_gpu(spec) or '-'} ({memory_need_bytes(spec).with_paged / 1e9:.1f} GB)")
        rows.append(cells)
    return markdown_table(head, rows)


def document() -> str:
    rows = measured_rows()
    gpus = ", ".join(f"{name} {memory:g}" for name, memory in sorted(GPU_MEMORY_GIB.items(), key=lambda item: item[1]))
    return TEXT.format(
        usable=USABLE_SHARE,
        count=len(rows),
        errors=errors_table(rows),
        beyond=", ".join(f"{row.name} ({row.error_pct:+.1f} %)" for row in beyond(rows)) or "none",
        margin=1 - USABLE_SHARE,
        measured=measured_table(rows),
        smallest=smallest_table(),
        gpus=gpus,
    )


if __name__ == "__main__":
    (ROOT / "docs" / "internals" / "sizing.md").write_text(document())
