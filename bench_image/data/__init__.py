"""Training batches, from memory or from shards on disk."""
