"""What benchmarking itself cost, over runs and months, and what it would cost elsewhere."""
