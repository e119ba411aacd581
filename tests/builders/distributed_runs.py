"""Cases of equal work, and one distributed run that trains all of them for several tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_image.contract.options import Optimizer, Precision, Recipe, Strategy
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Lora, Preset
from tests.builders.equal_work_program import COMPILED, COUNTED, FORGETFUL, FUSED, KEPT, STRANGERS
from tests.builders.image_processes import environment, make_spec
from tests.builders.warm_processes import run_warm

DISTRIBUTED = (Strategy.DDP, Strategy.FSDP, Strategy.ZERO2, Strategy.ZERO3)
SMALL = {"vocab_size": 512, "hidden_size": 64, "num_heads": 4}
GPT2 = {
    "model": "tiny-gpt2",
    "dimensions": {"family": "gpt2", "num_layers": 2, "max_positions": 64} | SMALL,
}
MOE = {
    "model": "tiny-mixtral",
    "dimensions": {
        "family": "mixtral", "intermediate_size": 128, "num_layers": 2, "num_kv_heads": 2, "max_positions": 64,
        "num_experts": 4, "num_experts_per_token": 2,
    } | SMALL,
}  # fmt: skip
SEQ2SEQ = {
    "model": "tiny-seq2seq",
    "dimensions": {
        "family": "encoder-decoder", "intermediate_size": 128, "num_encoder_layers": 2, "num_decoder_layers": 2,
    } | SMALL,
}  # fmt: skip
# Linears of more than 1e5 numbers, also when four are packed into one: ZeRO-3 leaves smaller tensors whole.
WIDE = {
    "model": COUNTED,
    "dimensions": {
        "family": "llama", "vocab_size": 512, "hidden_size": 768, "intermediate_size": 1024, "num_layers": 1,
        "num_heads": 4, "num_kv_heads": 4, "max_positions": 64,
    },
}  # fmt: skip
SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TUNED, AS_USERS_RUN = {"preset": Preset.TUNED}, {"preset": Preset.AS_USERS_RUN}
WHOLE = {"gradient_checkpointing": False}  # where other cases check that a strategy and checkpointing get on

CASES: dict[str, dict[str, Any]] = {
    "full fp32": {"recipe": Recipe.FULL, "precision": Precision.FP32} | WHOLE,
    "full bf16 tuned": {"recipe": Recipe.FULL} | TUNED,
    "full fp16": {"recipe": Recipe.FULL, "precision": Precision.FP16} | WHOLE,
    "full 8-bit": {"recipe": Recipe.FULL, "optimizer": Optimizer.ADAMW_8BIT} | TUNED | WHOLE,
    "lora as users run": {"recipe": Recipe.LORA} | AS_USERS_RUN,
    "qlora bf16 tuned": {"recipe": Recipe.QLORA} | TUNED,
    f"lora tuned {FUSED}": {"recipe": Recipe.LORA, "lora": Lora(targets=SEVEN)} | TUNED | WHOLE,
    f"qlora tuned {FUSED}": {"recipe": Recipe.QLORA, "lora": Lora(targets=SEVEN[:4])} | TUNED | WHOLE,
    f"full {COMPILED}": {"recipe": Recipe.FULL} | TUNED | WHOLE,
    f"lora {COMPILED} {FUSED}": {"recipe": Recipe.LORA, "lora": Lora(targets=SEVEN)} | TUNED | WHOLE,
    f"qlora {COMPILED} {FUSED} {KEPT}": {"recipe": Recipe.QLORA} | TUNED | WHOLE,
    f"qlora {COMPILED} {FUSED} checkpointing": {"recipe": Recipe.QLORA, "gradient_checkpointing": True} | TUNED,
    "qlora as users run": {"recipe": Recipe.QLORA} | AS_USERS_RUN,
    "qlora fp16 tuned": {"recipe": Recipe.QLORA, "precision": Precision.FP16} | TUNED | WHOLE,
    "gpt2 full fp32": {"recipe": Recipe.FULL, "precision": Precision.FP32} | WHOLE | GPT2,
    "gpt2 qlora tuned": {"recipe": Recipe.QLORA, "lora": Lora(targets=("attn.c_attn", "mlp.c_proj"))}
    | TUNED
    | WHOLE
    | GPT2,
    "mixtral full tuned": {"recipe": Recipe.FULL} | TUNED | MOE,
    "mixtral qlora tuned": {"recipe": Recipe.QLORA} | TUNED | MOE,
    "seq2seq bf16": {"recipe": Recipe.FULL} | SEQ2SEQ,
}
WIDE_CASES: dict[str, dict[str, Any]] = {
    "wide full": {"recipe": Recipe.FULL} | TUNED | WHOLE | WIDE,
    "wide qlora": {"recipe": Recipe.QLORA} | AS_USERS_RUN | WHOLE | WIDE,
}
NO_ZERO = {"full fp16", "qlora fp16 tuned"}
FORGOTTEN = ("full fp32", "lora as users run", "qlora bf16 tuned")  # by both tolerances


def strategies_of(case: str) -> tuple[Strategy, ...]:
    if COMPILED in case:
        return (Strategy.ZERO3,)  # DDP and FSDP wrap layers that compile themselves
    if case in NO_ZERO:
        return (Strategy.DDP, Strategy.FSDP)
    # ZeRO-2 keeps weights whole, as DDP does, so only what shards them knows a model's layers and how they are fused.
    # Of the families DDP needs only the mixture, whose experts may all lack a gradient.
    if case.startswith(("gpt2", "seq2seq")):
        return (Strategy.FSDP, Strategy.ZERO3)
    return (Strategy.DDP, Strategy.FSDP, Strategy.ZERO3) if case.startswith("mixtral") or FUSED in case else DISTRIBUTED


def spec_of(case: str, strategy: Strategy) -> RunSpec:
    """Global batch 8: two ranks that accumulate twice 2, or one rank that does so four times. Of few tokens, because a
    CPU computes bf16 slowly.
    """
    fields = {"optimizer": Optimizer.ADAMW_TORCH, "seq_length": 8} | (CASES | WIDE_CASES)[case]
    steps = 4 if strategy is Strategy.SINGLE else 2
    return make_spec(strategy=strategy, gradient_accumulation_steps=steps, **fields)


def all_specs() -> Iterator[tuple[str, RunSpec]]:
    """By strategy, DeepSpeed's last: it replaces functions of torch for the whole process."""
    for strategy in (Strategy.SINGLE, *DISTRIBUTED):
        if strategy is not Strategy.SINGLE:  # before compilation leaves tensors without memory in the process
            for case in WIDE_CASES:
                yield f"{case}/{strategy}", spec_of(case, strategy)
        for case in CASES:
            if strategy is Strategy.SINGLE or strategy in strategies_of(case):
                yield f"{case}/{strategy}", spec_of(case, strategy)
        if strategy is Strategy.DDP:
            yield f"{STRANGERS}/{strategy}", spec_of("full fp32", strategy)
            for case in FORGOTTEN:
                yield f"{case}/{FORGETFUL}", spec_of(case, strategy)


def run_all(folder: Path) -> list[dict[str, Any]]:
    """The records of both ranks, by the name of the spec; specs of one rank have a record of the first only."""
    (folder / "specs.json").write_text(json.dumps({name: spec.model_dump(mode="json") for name, spec in all_specs()}))
    program = str(Path(__file__).with_name("equal_work_program.py"))
    torchrun = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
    done = run_warm(
        [*torchrun, program, str(folder / "specs.json"), str(folder)],
        environment(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", DS_ACCELERATOR="cpu", PYTHONWARNINGS="ignore"),
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(2)]
