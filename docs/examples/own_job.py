"""An example: a small language model, trained with DDP on one node or several, and the line that trainbench reads.

trainbench run -- torchrun --nproc-per-node {gpus} own_job.py --steps 200
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn

LAYERS, WIDTH, WORDS, LENGTH, BATCH = 2, 128, 1024, 64, 8  # batch: of one GPU


class Model(nn.Module):
    """Layers of a transformer between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, batch_first=True)
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.TransformerEncoder(layer, LAYERS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        logits: torch.Tensor = self.head(self.layers(self.embedding(tokens), mask=mask, is_causal=True))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpu else "gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    samples = BATCH * dist.get_world_size()
    for step in range(1, steps + 1):
        began = time.perf_counter()
        tokens = torch.randint(WORDS, (BATCH, LENGTH + 1), device=device)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        number = loss.item()  # waits for the GPU
        if dist.get_rank() == 0:
            print(
                f"trainbench: step={step} seconds={time.perf_counter() - began} samples={samples} "
                f"tokens={samples * LENGTH} loss={number}",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
