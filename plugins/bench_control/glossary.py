"""How to read the reports: each figure and each state in one or two sentences."""

from __future__ import annotations

FIGURES = (
    ("samples/s", "Samples of all ranks / wall seconds of the measured windows; warm-up and start-up are outside."),
    ("tokens/s", "Non-padding tokens of all ranks / the same seconds."),
    ("deviation", "(value - reference) / reference. A node's value is the median of its runs."),
    ("leave-one-out median", "The median of the other nodes, so that a slow node cannot pull its own reference down."),
    ("spread", "(fastest node - slowest node) / median of the nodes."),
    ("noise", "Pooled standard deviation of the samples/s that one node shows from run to run."),
    ("step CV", "Standard deviation of the step times / their mean; a step takes as long as its slowest rank."),
    ("memory GB", "Peak allocated by torch in training, largest rank, 1e9 bytes. On a CPU: resident memory."),
    ("temperature", "Mean within the measured windows, hottest GPU of the run."),
    ("MFU", "Model FLOPs per second by formula / the GPU's peak; HFU counts recomputed FLOPs too."),
    ("of matmul rate", "The same FLOP rate over the rate of a large matmul measured on the same GPU."),
    ("H2D GB/s", "Pinned host-to-device copy, really measured before the loop."),
    ("exposed comm.", "Share of a step in which the GPU waited for communication; all comm.: with what computing hid."),
    ("loader wait", "Share of the windows in which the training loop waited for its data, slowest rank."),
    ("scaling efficiency", "Throughput per GPU over that at the smallest number of GPUs measured for the same work."),
    ("equal work", "Model, data, batch, dtypes, optimizer, checkpointing are equal, by fingerprint; else no ranking."),
    ("pattern", "Throughput and memory against the median of the strategies beside it; medium: within 5 %."),
    ("level", "Nearer to each other than the noise that their runs and windows show: chance could swap them."),
)  # fmt: skip

STATES = (
    ("ok", "Within all limits."),
    ("notice", "Outside a limit once, but the re-run did not confirm it; or faster than its own history. Not red."),
    ("breach", "Outside a limit, slow or fast side named. Red."),
    ("insufficient", "Too few nodes, or more noise than the limit: the reason gives the figures. Not red."),
    ("failed", "Ran, but gave no valid result. Red."),
    ("missing", "Expected, but did not run. Red."),
    ("busy", "Its GPUs were taken by other work. Not judged."),
    ("not judged", "This figure cannot be judged here, such as a temperature without a GPU."),
    ("no baseline", "Too few past runs to compare with."),
)  # fmt: skip
