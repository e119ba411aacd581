"""Bytes and dtypes that each strategy keeps on a rank, against what it says of itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench_image.contract.options import DEEPSPEED, Optimizer, Strategy
from bench_image.parallel.deepspeed import REDUCE_BUCKET, settings
from bench_image.parallel.process_group import PEER_TIMEOUT_S
from bench_image.parallel.strategies import peer_timeout_s
from tests.builders.distributed_runs import CASES, spec_of, strategies_of
from tests.builders.equal_work_program import STRANGERS
from tests.builders.image_processes import make_spec

CELLS = [(case, strategy) for case in CASES for strategy in (Strategy.SINGLE, *strategies_of(case))]
NARROW = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}
# Of the wide model: 2 x 512 x 768 (embedding, head) + 4 x 768 x 768 + 3 x 768 x 1024 + 3 norms of 768.
NUMBERS = 5_507_328
FULL_BYTES = 2 * NUMBERS


def held(seen: list[dict[str, Any]], name: str, rank: int = 0) -> dict[str, int]:
    bytes_of: dict[str, int] = seen[rank][name]["bytes"]
    return bytes_of


@pytest.mark.parametrize(
    ("strategy", "weights", "gradients", "copies", "states"),
    [
        (Strategy.DDP, 1, 1, 0, 2),
        (Strategy.FSDP, 1 / 2, 1 / 2, 0, 1),
        (Strategy.ZERO2, 1, 1 / 2, 1 / 2, 1),
        (Strategy.ZERO3, 1 / 2, 1 / 2, 1 / 2, 1),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_full_training_is_sharded_as_the_table_says(
    seen: list[dict[str, Any]],
    strategy: Strategy,
    rank: int,
    weights: float,
    gradients: float,
    copies: float,
    states: float,
) -> None:
    """Two ranks, bf16: in parts of the 11.0 MB that the weights have; norms may stay whole."""
    kept = held(seen, f"wide full/{strategy}", rank)
    expected = {"weights": weights, "gradients": gradients, "copies": copies, "states": states}

    assert {name: kept[name] / FULL_BYTES for name in expected} == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("strategy", "parts"), [("ddp", 4), ("fsdp", 1.5), ("zero2", 2.5), ("zero3", 3.5)])
def test_nothing_else_stays_in_memory(seen: list[dict[str, Any]], strategy: str, parts: float) -> None:
    """All tensors of the process between steps. ddp's gradients, zero3's (1/2) and its bucket (1) stay."""
    assert held(seen, f"wide full/{strategy}")["alive"] / FULL_BYTES == pytest.approx(parts, abs=0.01)


@pytest.mark.parametrize("strategy", ["fsdp", "zero3"])
def test_packed_weights_are_sharded_too(seen: list[dict[str, Any]], strategy: str) -> None:
    """Adapters, and what of the model is no linear, are the same on both sides; zero3 keeps adapters whole."""
    whole, ours = held(seen, "wide qlora/ddp"), held(seen, f"wide qlora/{strategy}")
    frozen = whole["weights"] - whole["trainable"]

    assert (ours["weights"] - ours["trainable"]) / frozen == pytest.approx(1 / 2, abs=0.005)
    assert ours["states"] / whole["states"] == pytest.approx(1 / 2)


@pytest.mark.parametrize(("case", "strategy"), CELLS)
def test_the_reported_shards_are_those_held(seen: list[dict[str, Any]], case: str, strategy: Strategy) -> None:
    run = seen[0][f"{case}/{strategy}"]
    execution, dtypes = run["execution"], run["dtypes"]
    trained = NARROW[execution["gradients"].split(",")[0]]

    assert execution.get("NCCL_NVLS_ENABLE") == (None if strategy is Strategy.SINGLE else "0")
    assert dtypes["trainable"] == dtypes["gradients"] == [trained]
    assert set(dtypes["copies"]) <= {trained}
    assert execution["master weights"].endswith(f"({execution['gradients'].split(',')[0]})")
    if spec_of(case, strategy).work.optimizer is Optimizer.ADAMW_TORCH:
        assert dtypes["states"] == [NARROW[execution["optimizer states"]]]
    else:
        assert dtypes["states"] == ["torch.float32", "torch.uint8"]
    if execution["weights"] in NARROW:
        frozen = set(dtypes["weights"]) - ({trained} if "adapters" in execution else set())
        assert frozen <= {NARROW[execution["weights"]]}
    else:
        rest = execution["weights"].rpartition(" ")[2]
        assert set(dtypes["weights"]) <= {"torch.bfloat16", trained, NARROW[rest]}  # packed into bf16


@pytest.mark.parametrize("case", CASES)
def test_numerics_do_not_depend_on_the_strategy(seen: list[dict[str, Any]], case: str) -> None:
    """Only how memory and communication are shared may; and bitsandbytes' blocks, which DeepSpeed flattens. NCCL's
    variables say nothing of one rank.
    """
    runs = {strategy: seen[0][f"{case}/{strategy}"] for strategy in (Strategy.SINGLE, *strategies_of(case))}
    free = {"sharded", "layers after forward", "weights gathered", "gradients exchanged", "NCCL_NVLS_ENABLE"}

    for strategy, run in runs.items():
        differs = {"optimizer states"} if strategy in DEEPSPEED and "8-bit" in case else set()
        alone = runs[Strategy.SINGLE]["execution"]
        assert {k: v for k, v in run["execution"].items() if k not in free | differs} == {
            k: v for k, v in alone.items() if k not in differs
        }


def test_gpus_of_different_kinds_are_refused_on_every_rank(seen: list[dict[str, Any]]) -> None:
    for rank in range(2):
        assert seen[rank][f"{STRANGERS}/ddp"]["error"].startswith(
            "RuntimeError: the ranks have different GPUs: GPU of kind 0 (rank 0), GPU of kind 1 (rank 1)"
        )


def test_a_peer_is_given_up_before_the_run_is() -> None:
    assert peer_timeout_s(make_spec(timeout_s=1800)) == PEER_TIMEOUT_S == 120
    assert peer_timeout_s(make_spec(timeout_s=60)) == 30


def test_zeros_buffer_is_no_larger_than_what_trains() -> None:
    few = [torch.nn.Parameter(torch.zeros(10, dtype=torch.bfloat16))]
    many = [torch.nn.Parameter(torch.zeros(REDUCE_BUCKET + 1, dtype=torch.bfloat16, device="meta"))]

    assert settings(3, few, torch.device("cpu"))["zero_optimization"]["reduce_bucket_size"] == 10
    assert settings(3, many, torch.device("cpu"))["zero_optimization"]["reduce_bucket_size"] == REDUCE_BUCKET


def test_deepspeed_adds_no_precision_of_its_own_to_fp32_trainables() -> None:
    wide = [torch.nn.Parameter(torch.zeros(10))]

    assert not {"bf16", "fp16", "torch_autocast"} & set(settings(2, wide, torch.device("cpu")))
