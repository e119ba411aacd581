"""Training batches from memory or from shards on disk: made, verified and read ahead."""
