"""Results that travel: files of other benchmarks read, ours published, imported, compared across machines."""
