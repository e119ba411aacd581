"""Fused LoRA and 4-bit kernels."""
