"""The kinds of campaigns: the question that each one answers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Question(StrEnum):
    """What a campaign was made to answer. Only the first judges nodes; the others compare what ran on them."""

    NODES = "nodes"  # is every node as fast as its peers?
    STRATEGIES = "strategies"  # which strategy, on how many GPUs?
    CONFIGURATIONS = "configurations"  # what helped, against a baseline?
    HARDWARE = "hardware"  # which GPU for which model and recipe?
    NOISE = "noise"  # how much do equal runs differ here?


# Suites that run without Airflow, too: independent pods, one after another.
SUITES: Mapping[str, Question] = {
    "node_consistency": Question.NODES,
    "config_diagnosis": Question.CONFIGURATIONS,
    "hardware_survey": Question.HARDWARE,
}
