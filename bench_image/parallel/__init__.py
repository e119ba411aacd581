"""Process groups and strategies: single, independent, DDP, FSDP, DeepSpeed ZeRO."""
