"""The pod's processes: supervisor, torchrun, workers, their reports, and the merged result."""
