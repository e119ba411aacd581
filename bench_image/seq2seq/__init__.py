"""Encoder-decoder benchmarks without a spec."""
