"""`python -m bench_image.seq2seq`: benchmarks of an encoder-decoder model from command-line flags, without a spec."""
