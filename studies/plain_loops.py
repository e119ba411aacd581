"""What a user gets with torch.compile in twenty lines: small models on one GPU, bf16, fused AdamW, clipping.

`loop(kind, batch, length)` builds one; measure_small.py times it beside the program. Kinds: gpt2, gpt2-medium,
gpt2-lora (PEFT's adapters of rank 16 on all linears), tier-a, tier-b, encoder-decoder (128 wide, 3 + 3 layers),
encoder-decoder-512 (512 wide, 6 + 6). Of an encoder-decoder `length` is source plus target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class EncoderDecoder(nn.Module):
    def __init__(self, vocabulary: int, width: int, feed_forward: int, layers: int, heads: int, positions: int = 4096):
        super().__init__()
        layer: dict[str, Any] = {
            "d_model": width, "nhead": heads, "dim_feedforward": feed_forward, "dropout": 0.0, "batch_first": True,
            "norm_first": True,
        }  # fmt: skip
        self.embedding, self.width = nn.Embedding(vocabulary, width), width
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**layer), layers, nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("positions", torch.randn(positions, width))

    def embed(self, ids: Any) -> Any:
        return self.embedding(ids) * math.sqrt(self.width) + self.positions[: ids.shape[1]]  # type: ignore[index]

    def forward(self, ids: Any) -> Any:
        half = ids.shape[1] // 2
        memory = self.encoder(self.embed(ids[:, :half]))
        read = F.pad(ids[:, half:-1], (1, 0), value=0)
        mask = memory.new_full((), -math.inf).expand(half, half)
        logits = self.head(self.decoder(self.embed(read), memory, tgt_mask=mask, tgt_is_causal=True))
        return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, half:].flatten())


def model_of(kind: str) -> tuple[Any, Callable[[Any], Any], int]:
    """The model, a function from ids to the loss, and the vocabulary."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    if kind.startswith("encoder-decoder"):
        shape = (512, 2048, 6, 8) if kind.endswith("512") else (128, 512, 3, 4)
        seq2seq: Any = EncoderDecoder(8000, *shape).to("cuda", torch.bfloat16)
        return seq2seq, seq2seq, 8000
    model: Any
    if kind.startswith("gpt2"):
        width, layers, heads = (1024, 24, 16) if kind == "gpt2-medium" else (768, 12, 12)
        dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        gpt2: Any = GPT2Config(n_embd=width, n_layer=layers, n_head=heads, use_cache=False, **dropouts)
        model = base = GPT2LMHeadModel(gpt2)
        body, vocabulary = base.transformer, gpt2.vocab_size
        if kind == "gpt2-lora":
            from peft import LoraConfig, get_peft_model

            targets = ["c_attn", "c_proj", "c_fc"]
            lora = LoraConfig(
                r=16, lora_alpha=32, target_modules=targets, task_type="CAUSAL_LM", fan_in_fan_out=True
            )  # fmt: skip
            model = get_peft_model(model, lora, autocast_adapter_dtype=False)
    else:
        width, inner, layers, heads = {"tier-a": (1024, 2816, 16, 16), "tier-b": (2048, 5632, 32, 32)}[kind]
        llama = LlamaConfig(
            vocab_size=32_000, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=4096, use_cache=False,
        )  # fmt: skip
        with torch.device("cuda"):
            model = base = LlamaForCausalLM(llama)
        body, vocabulary = base.model, 32_000
    model.to("cuda", torch.bfloat16)

    def loss_of(ids: Any) -> Any:
        hidden = body(input_ids=ids).last_hidden_state[:, :-1]
        return F.cross_entropy(base.lm_head(hidden).flatten(0, 1).float(), ids[:, 1:].flatten())

    return model, loss_of, vocabulary


def loop(kind: str, batch: int, length: int) -> Callable[[], Any]:
    """A training step, compiled with torch's CUDA graphs of forward and backward."""
    torch.manual_seed(0)
    model, loss_of, vocabulary = model_of(kind)
    compiled = torch.compile(loss_of, mode="reduce-overhead")
    parameters = [parameter for parameter in model.train().parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    ids = torch.randint(0, vocabulary, (batch, length), device="cuda")

    def step() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        loss = compiled(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step
