"""The optimizer: AdamW in each variant, its kernel, gradient clipping, and the parts of one step."""
