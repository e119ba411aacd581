"""What a campaign is made to answer."""

from __future__ import annotations

from enum import StrEnum


class Question(StrEnum):
    """What a campaign was made to answer. Only the first judges nodes; the others compare what ran on them."""

    NODES = "nodes"  # is every node as fast as its peers?
    STRATEGIES = "strategies"  # which strategy, on how many GPUs?
    CONFIGURATIONS = "configurations"  # what helped, against a baseline?
    HARDWARE = "hardware"  # which GPU for which model and recipe?
    NOISE = "noise"  # how much do equal runs differ here?
