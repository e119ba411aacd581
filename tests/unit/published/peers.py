"""Figures of `tuned` beside TRL and Unsloth, from docs/results/peers-h200-2026-11-23."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from bench_image.contract.flops import num_linear
from bench_image.contract.model_shapes import MODELS
from tests.unit.published.measured import document, each, row

PEERS = "peers-h200-2026-11-23"
SKIPPED = 2  # steps of a turn, as `studies/compare_peers.py` does
JOBS = {"qlora": "QLoRA 8 x 512", "lora": "LoRA 8 x 2048"}
NAMES = {
    "tuned": "`tuned`",
    "trl": "TRL with Liger kernels",
    "trl-without-liger": "TRL",
    "unsloth": "Unsloth",
}
MISTRAL = MODELS["mistral-7b"]
BF16_BYTES = 2


def reports(recipe: str, program: str, folder: str = PEERS) -> Any:
    return document(f"{folder}/{recipe}.json")["programs"][program]


def tokens_per_step(recipe: str, folder: str = PEERS) -> int:
    job = document(f"{folder}/{recipe}.json")["job"]
    return int(job["micro_batch_size"] * job["seq_length"])


def counted(recipe: str, program: str, folder: str = PEERS) -> list[Any]:
    return [turn for turn in reports(recipe, program, folder)["turns"] if "profile" not in turn]


def rates(recipe: str, program: str, folder: str = PEERS) -> list[float]:
    tokens = tokens_per_step(recipe, folder)
    return [tokens / statistics.median(turn["step_s"][SKIPPED:]) for turn in counted(recipe, program, folder)]


def ratio(recipe: str, program: str) -> float:
    return sum(rates(recipe, "tuned")) / sum(rates(recipe, program))


def peak_gb(recipe: str, program: str, folder: str = PEERS) -> float:
    turns = reports(recipe, program, folder)["first_turns"] + counted(recipe, program, folder)
    return max(turn["peak_allocated_gb"] for turn in turns)


def first_step_s(recipe: str, program: str, start: int = 0) -> float:
    seconds: float = reports(recipe, program)["first_turns"][start]["step_s"][0]
    return seconds


def page() -> Iterator[str]:
    for recipe, job in JOBS.items():
        for program in document(f"{PEERS}/{recipe}.json")["programs"]:
            turn = counted(recipe, program)[0]["losses"]
            yield row(
                job,
                NAMES[program],
                each(rates(recipe, program), ",.0f"),
                "" if program == "tuned" else f"{ratio(recipe, program):.2f}",
                f"{peak_gb(recipe, program):.1f}",
                f"{reports(recipe, program)['starts'][0]['ready_s']:.1f}",
                f"{first_step_s(recipe, program):.1f}",
                f"{turn[0]:.3f}, {turn[-1]:.3f}",
            )
    yield f"{tokens_per_step('lora'):,} tokens {mlp_matrix_gb('lora'):.1f} GB of the {above_unsloth_gb('lora'):.1f} GB"
    yield f"{mlp_matrix_gb('qlora'):.1f} GB and the unpacked 4-bit weights {unpacked_gb():.1f} GB"
    yield f"of {above_unsloth_gb('qlora'):.1f} GB"
    yield f"takes {each([first_step_s(recipe, 'unsloth') for recipe in JOBS], '.1f')} s where that of"
    yield f"takes {each([first_step_s(recipe, 'tuned') for recipe in JOBS], '.1f')} s"
    yield f"the first step took {first_step_s('lora', 'tuned', 1):.1f} s"


def above_unsloth_gb(recipe: str) -> float:
    return peak_gb(recipe, "tuned") - peak_gb(recipe, "unsloth")


def mlp_matrix_gb(recipe: str) -> float:
    """One matrix of the MLP's width for each layer."""
    return MISTRAL.num_layers * tokens_per_step(recipe) * MISTRAL.intermediate_size * BF16_BYTES / 1e9


def unpacked_gb() -> float:
    return num_linear(MISTRAL) * BF16_BYTES / 1e9
