"""An encoder-decoder Transformer of torch.nn layers (arXiv 1706.03762), called like a model of transformers."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from bench_image.contract.model_shapes import EncoderDecoderShape

START_TOKEN = 0  # precedes the first target token in the decoder's input


class Output(NamedTuple):
    """Mean cross-entropy (scalar) and logits (batch, seq, vocab)."""

    loss: torch.Tensor
    logits: torch.Tensor


class EncoderDecoder(nn.Module):
    """Pre-norm, no dropout, sinusoidal positions, one embedding for source and target, an untied head with bias.

    `nn.Transformer` consists of these two stacks; built separately, the encoder can do without nested tensors, which
    pre-norm cannot use and about which torch would warn.

    A batch of token ids is (batch, 2 * seq): the first half of each row is the source, the second the target. Teacher
    forcing: the decoder reads the target moved right by one, with START_TOKEN in front, and predicts the target. So
    each of the 2 * seq tokens goes through a stack, and each of the seq target tokens through the head.
    """

    positions: torch.Tensor

    def __init__(self, shape: EncoderDecoderShape) -> None:
        super().__init__()
        self.shape = shape
        hidden = shape.hidden_size
        # dropout=0: it would make losses differ between strategies
        layer: dict[str, Any] = {
            "d_model": hidden, "nhead": shape.num_heads, "dim_feedforward": shape.intermediate_size, "dropout": 0.0,
            "batch_first": True, "norm_first": True,
        }  # fmt: skip
        # Not drawn here: the first normal_ on meta imports torch._dynamo, which takes seconds.
        self.embedding = nn.Embedding(shape.vocab_size, hidden, _weight=torch.empty(shape.vocab_size, hidden))
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**layer), shape.num_encoder_layers, nn.LayerNorm(hidden),
            enable_nested_tensor=False,
        )  # fmt: skip
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**layer), shape.num_decoder_layers, nn.LayerNorm(hidden)
        )
        self.head = nn.Linear(hidden, shape.vocab_size)
        self.register_buffer("positions", torch.empty(shape.max_positions, hidden), persistent=False)

    def rebuild_positions(self, device: torch.device) -> None:
        """Fills the buffer of positions, (max_positions, hidden), which a model built on meta lacks."""
        table = sinusoids(self.shape.max_positions, self.shape.hidden_size, device)
        self.positions = table.to(self.positions.dtype)

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        """Layers keep only their inputs; the name and the argument are those of transformers."""
        for layer in (*self.encoder.layers, *self.decoder.layers):
            layer.forward = functools.partial(checkpoint, layer.forward, **gradient_checkpointing_kwargs)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Output:
        """The mean cross-entropy over all target tokens, and the logits (batch, seq, vocab).

        ids and labels are (batch, 2 * seq).
        """
        logits: torch.Tensor = self.head(self.decoded(input_ids))
        targets = labels[:, labels.shape[1] // 2 :]
        return Output(functional.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits)

    def decoded(self, input_ids: torch.Tensor) -> torch.Tensor:
        """What the head reads, (batch, seq, hidden), from ids (batch, 2 * seq).

        ValueError: an odd width, or more positions than the model has.
        """
        length, odd = divmod(input_ids.shape[1], 2)
        if odd or length > self.shape.max_positions:
            raise ValueError(
                f"ids of width {input_ids.shape[1]}: source and target have the same length, at most "
                f"max_positions {self.shape.max_positions}: an even width of at most {2 * self.shape.max_positions}"
            )
        # Encoder over the source; decoder over the target moved right by one.
        memory = self.encoder(self._embed(input_ids[:, :length]))
        read = functional.pad(input_ids[:, length:-1], (1, 0), value=START_TOKEN)
        # torch requires a mask beside `tgt_is_causal`, and then ignores it for a causal kernel. This mask is a single
        # number, -inf: if torch ever used it, the loss would be NaN instead of silently not causal.
        mask = memory.new_full((), -math.inf).expand(length, length)
        hidden: torch.Tensor = self.decoder(self._embed(read), memory, tgt_mask=mask, tgt_is_causal=True)
        return hidden

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, seq) -> (batch, seq, hidden); scaled as in arXiv 1706.03762, section 3.4."""
        scaled: torch.Tensor = self.embedding(ids) * math.sqrt(self.shape.hidden_size)
        return scaled + self.positions[: ids.shape[1]]


def attend(
    layer: nn.MultiheadAttention, query: torch.Tensor, key: torch.Tensor, _value: torch.Tensor, *,
    is_causal: bool = False, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """What `layer` computes in this model, (batch, seq, hidden), without the copies that its own order of axes costs.

    The value is always the key, and causality needs no mask.
    """
    weight, bias, hidden = layer.in_proj_weight, layer.in_proj_bias, layer.embed_dim
    if query is key:
        parts = functional.linear(query, weight, bias).chunk(3, -1)
    else:
        mine = functional.linear(query, weight[:hidden], bias[:hidden])
        parts = (mine, *functional.linear(key, weight[hidden:], bias[hidden:]).chunk(2, -1))
    q, k, v = (part.view(*part.shape[:-1], layer.num_heads, -1).transpose(1, 2) for part in parts)
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    return layer.out_proj(mixed.transpose(1, 2).flatten(2)), None


def sinusoids(num_positions: int, hidden_size: int, device: torch.device) -> torch.Tensor:
    """sin(p / 10000^(2i/D)) at column 2i and its cosine at 2i + 1 (arXiv 1706.03762, 3.5): (num_positions, D), fp32."""
    columns = torch.arange(hidden_size, device=device)
    frequencies = torch.exp((columns // 2) * (-2 * math.log(10_000) / hidden_size))
    angles = torch.arange(num_positions, device=device)[:, None] * frequencies
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos())
