"""The kinds of campaigns."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class CampaignKind(StrEnum):
    """The question that a campaign answers. Only NODES judges nodes; the others compare runs."""

    NODES = "nodes"  # is every node as fast as its peers?
    STRATEGIES = "strategies"  # which strategy, on how many GPUs?
    CONFIGURATIONS = "configurations"  # what helped, against a baseline?
    HARDWARE = "hardware"  # which GPU for which model and recipe?
    NOISE = "noise"  # how much do equal runs differ here?


# Suites that run without Airflow, too: independent pods, one after another.
SUITES: Mapping[str, CampaignKind] = {
    "node_consistency": CampaignKind.NODES,
    "config_diagnosis": CampaignKind.CONFIGURATIONS,
    "hardware_survey": CampaignKind.HARDWARE,
}
