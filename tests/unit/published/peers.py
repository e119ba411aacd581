"""Figures of the trial of `studies/compare_peers.py`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

from tests.unit.published.measured import document

PEERS = "peers-trial-h200-2026-11-23"


def reported(program: str) -> tuple[Any, Any]:
    """How the program started, and its first turn of steps."""
    of = document(f"{PEERS}/trial.json")["programs"][program]
    return of["starts"][0], of["first_turns"][0]


def losses_per_step(turn: Any) -> float:
    """One for each micro-batch."""
    return len(turn["losses"]) / len(turn["step_s"])


def trial() -> Iterator[str]:
    job = document(f"{PEERS}/trial.json")["job"]
    tokens = job["micro_batch_size"] * job["seq_length"]
    (unsloth, unsloth_turn), (trl, trl_turn) = reported("unsloth"), reported("trl")
    packages, own_packages = trl["versions"], unsloth["versions"]
    yield f"TRL {packages['trl']} with Liger kernels {packages['liger-kernel']} and torch.compile"
    yield f"Unsloth {own_packages['unsloth']}, which allows TRL up to {own_packages['trl']}"
    yield f"because xformers {own_packages['xformers']} does not load with torch {own_packages['torch']}."
    yield f"transformers {packages['transformers']}"
    # Unsloth divides each loss by the number of micro-batches of its step.
    micro_batches = math.ceil(losses_per_step(unsloth_turn))
    first = {f"{loss:.3f}" for loss in (trl_turn["losses"][0], micro_batches * unsloth_turn["losses"][0])}
    yield f"the loss of the first batch is {' and '.join(first)} in both."
    yield f"hold {micro_batches * tokens:,} tokens, except the last of an epoch."
    yield f"Unsloth was ready after {unsloth['ready_s']:.1f} s, TRL after {trl['ready_s']:.1f} s."
    yield f"The first step took {unsloth_turn['step_s'][0]:.1f} s and {trl_turn['step_s'][0]:.1f} s"
    unsloth_s, trl_s = (statistics.median(turn["step_s"][1:]) for turn in (unsloth_turn, trl_turn))
    yield f"{unsloth_s / micro_batches:.4f} s per {tokens:,} tokens in Unsloth, {trl_s:.4f} s in TRL."
