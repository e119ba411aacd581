"""Triton kernel that unpacks bitsandbytes' nf4 weights, double quantisation included, at the speed of memory.

Format: two 4-bit numbers per byte, the earlier one in the upper half; 64 numbers share a scale; value = level * scale.
With double quantisation scale = code[8-bit scale] * scales[block of 256 scales] + offset; else it is an fp32 number.
Reference: arXiv 2305.14314 (QLoRA), section 3.
"""

# mypy: disable-error-code="import-not-found, no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

WORDS, WARPS = 512, 4  # 32-bit words (8 numbers each) of one row per program; the fastest of 7 pairs on an H200


@triton.jit
def _unpack(
    packed, absmax, offset, scales, code, levels, out, row_words, row_programs, stride, double: tl.constexpr,
    words: tl.constexpr,
):  # fmt: skip
    # One program unpacks `words` 32-bit words of one row.
    row, start = tl.program_id(0) // row_programs, tl.program_id(0) % row_programs * words
    inner = start + tl.arange(0, words)
    inside = inner < row_words
    word = row * row_words + inner
    bits = tl.load(packed + word, inside, 0)
    # The scale of a word's 8 numbers: 8 words share a scale (64 numbers), 2048 words a scale of scales.
    if double:
        eighth = tl.load(absmax + word // 8, inside, 0).to(tl.int32)
        scale = tl.load(code + eighth) * tl.load(scales + word // 2048, inside, 0.0) + tl.load(offset)
    else:
        scale = tl.load(absmax + word // 8, inside, 0.0)
    # The word's 8 numbers in memory order: bytes are little-endian, and in each byte the upper half comes first.
    kind = out.dtype.element_ty
    v0 = (tl.load(levels + ((bits >> 4) & 15)) * scale).to(kind)
    v1 = (tl.load(levels + (bits & 15)) * scale).to(kind)
    v2 = (tl.load(levels + ((bits >> 12) & 15)) * scale).to(kind)
    v3 = (tl.load(levels + ((bits >> 8) & 15)) * scale).to(kind)
    v4 = (tl.load(levels + ((bits >> 20) & 15)) * scale).to(kind)
    v5 = (tl.load(levels + ((bits >> 16) & 15)) * scale).to(kind)
    v6 = (tl.load(levels + ((bits >> 28) & 15)) * scale).to(kind)
    v7 = (tl.load(levels + ((bits >> 24) & 15)) * scale).to(kind)
    # Interleave the 8 vectors so that consecutive numbers are stored side by side.
    even = tl.interleave(tl.interleave(v0, v4), tl.interleave(v2, v6))
    odd = tl.interleave(tl.interleave(v1, v5), tl.interleave(v3, v7))
    column = start * 8 + tl.arange(0, words * 8)
    tl.store(out + row.to(tl.int64) * stride + column, tl.interleave(even, odd), column < row_words * 8)


def unpack(
    packed: torch.Tensor, absmax: torch.Tensor, double: tuple[torch.Tensor, ...], levels: torch.Tensor,
    out: torch.Tensor,
) -> None:  # fmt: skip
    """Writes the weight into `out` (rows, features), whose rows may lie apart; features must be a multiple of 8.

    packed: uint8, two numbers each. absmax: a scale per 64 numbers, fp32, or uint8 with double quantisation. double:
    offset, scales, code; empty without double quantisation. levels: the 16 nf4 numbers, fp32.
    """
    offset, scales, code = double or (absmax, absmax, absmax)  # placeholders that the kernel does not read
    rows, row_words = out.shape[0], out.shape[1] // 8
    row_programs = triton.cdiv(row_words, WORDS)
    _unpack[(rows * row_programs,)](
        packed.reshape(-1).view(torch.int32), absmax, offset, scales, code, levels, out, row_words, row_programs,
        out.stride(0), double=bool(double), words=WORDS, num_warps=WARPS,
    )  # fmt: skip
