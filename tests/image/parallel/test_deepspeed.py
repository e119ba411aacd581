"""Why DeepSpeed's fp16 is not offered: it does not train the weights that the other strategies train."""

from __future__ import annotations

import subprocess
import sys

from tests.builders.image_processes import environment
from tests.builders.ports import free_port

HALVES = """
import deepspeed, torch, torch.distributed as dist
import deepspeed.ops
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.get_accelerator().is_fp16_supported = lambda: True  # of a CPU DeepSpeed does not think so
dist.init_process_group("gloo")
model = torch.nn.Linear(64, 64)
config = {"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": True}, "zero_optimization": {"stage": 2}}
optimizer = torch.optim.AdamW(model.parameters())
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
print("weights", {p.dtype for p in engine.module.parameters()})
"""


def test_deepspeeds_fp16_turns_fp32_weights_into_fp16_ones() -> None:
    gang_of_one = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", HALVES],
        env=environment(DS_ACCELERATOR="cpu", MASTER_PORT=str(free_port()), **gang_of_one),
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )

    assert "weights {torch.float16}" in done.stdout, done.stderr
