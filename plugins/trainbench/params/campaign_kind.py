"""The kinds of campaigns."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class CampaignKind(StrEnum):
    """The question that a campaign answers. Only NODES judges nodes; the others compare runs."""

    NODES = "nodes"  # Is every node as fast as its peers?
    STRATEGIES = "strategies"  # Which strategy is fastest, on how many GPUs?
    CONFIGURATIONS = "configurations"  # Which configuration is better than the baseline?
    HARDWARE = "hardware"  # Which GPU for which model and recipe?
    INTERCONNECT = "interconnect"  # Which node or link slows gangs?
    NOISE = "noise"  # How much do equal runs differ here?


# Suites that also run without Airflow: pods of this machine, one after another.
SUITES: Mapping[str, CampaignKind] = {
    "node_consistency": CampaignKind.NODES,
    "strategy_scaling": CampaignKind.STRATEGIES,
    "config_diagnosis": CampaignKind.CONFIGURATIONS,
    "hardware_survey": CampaignKind.HARDWARE,
    "interconnect": CampaignKind.INTERCONNECT,
}
CAMPAIGN_SUFFIXES = (".yaml", ".yml")  # of campaign files
