"""Figures of docs/results/models-h200-2026-11-28: models of today at full size on one H200."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.published.measured import folders, mfu_pct, peak_gb, row, tokens_per_s

RUNS = "models-h200-2026-11-28"
JOBS = {
    "Llama 3.1 8B QLoRA 8 x 512": "llama-3.1-8b-qlora-*-b8-s512-*-r1",
    "Llama 3.1 8B QLoRA 8 x 2048, all layers": "llama-3.1-8b-qlora-*-b8-s2048-*",
    "Llama 3.1 8B full 4 x 2048": "llama-3.1-8b-full-*",
    "Qwen 3 8B LoRA 8 x 2048, all layers": "qwen3-8b-lora-*",
    "Qwen 3 8B full 4 x 2048": "qwen3-8b-full-*",
    "Gemma 3 4B full 4 x 2048": "gemma-3-4b-full-*",
    "Phi 4 LoRA 4 x 2048": "phi-4-lora-*",
    "Qwen 3 30B-A3B LoRA 4 x 2048, checkpointed": "qwen3-30b-a3b-lora-*",
    "DeepSeek V2 Lite LoRA 2 x 2048, checkpointed": "deepseek-v2-lite-lora-*",
    "gpt-oss 20B LoRA 2 x 2048, checkpointed": "gpt-oss-20b-lora-*",
}


def table() -> Iterator[str]:
    for job, pattern in JOBS.items():
        (run,) = folders(f"{RUNS}/{pattern}")
        yield row(job, f"{tokens_per_s(run):,.0f}", f"{mfu_pct(run):.1f} %", f"{peak_gb(run):.1f}")
