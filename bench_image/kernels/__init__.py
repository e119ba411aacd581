"""Fused LoRA layers and their gradient kernel, and the 4-bit (nf4) unpacking kernel."""
