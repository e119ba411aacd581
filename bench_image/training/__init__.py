"""Training: step, warm-up and measured windows, autotuning, CUDA graph, profile of communication."""
