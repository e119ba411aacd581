"""Monthly cost of benchmarking, and cost estimates of training jobs."""
