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


class Suite(StrEnum):
    """Named after their DAGs; they also run without Airflow: pods of this machine, one after another."""

    NODE_CONSISTENCY = "node_consistency"
    STRATEGY_SCALING = "strategy_scaling"
    CONFIG_DIAGNOSIS = "config_diagnosis"
    HARDWARE_SURVEY = "hardware_survey"
    INTERCONNECT = "interconnect"


SUITES: Mapping[Suite, CampaignKind] = {
    Suite.NODE_CONSISTENCY: CampaignKind.NODES,
    Suite.STRATEGY_SCALING: CampaignKind.STRATEGIES,
    Suite.CONFIG_DIAGNOSIS: CampaignKind.CONFIGURATIONS,
    Suite.HARDWARE_SURVEY: CampaignKind.HARDWARE,
    Suite.INTERCONNECT: CampaignKind.INTERCONNECT,
}
CAMPAIGN_SUFFIXES = (".yaml", ".yml")  # of campaign files
