"""Models: structure, LoRA and 4-bit layers, weights, dtypes, compilation."""
