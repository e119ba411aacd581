"""The parameters of each kind of campaign: forms and reports of the other kinds do not show them."""

from __future__ import annotations

from collections.abc import Mapping

from trainbench.params.campaign_kind import CampaignKind

_NODES = frozenset({CampaignKind.NODES, CampaignKind.NOISE})
_GANGS = frozenset({CampaignKind.STRATEGIES})
_CONFIGURATIONS = frozenset({CampaignKind.CONFIGURATIONS})
_HARDWARE = frozenset({CampaignKind.HARDWARE})
_ONE_WORK = frozenset(CampaignKind) - _HARDWARE

# Parameters that are not here belong to every kind of campaign.
_ONLY: Mapping[str, frozenset[CampaignKind]] = {
    "strategies": _NODES | _GANGS | _HARDWARE,
    "gpus_per_node": _NODES | _GANGS,
    "world_sizes": _GANGS | _HARDWARE,
    "rounds": frozenset(CampaignKind) - _GANGS,
    **dict.fromkeys(("model", "dimensions", "weights", "recipe"), _ONE_WORK),
    **dict.fromkeys(("variants", "variant_data_folder"), _CONFIGURATIONS),
    **dict.fromkeys(("models", "recipes", "nodes_per_gpu_type"), _HARDWARE),
    **dict.fromkeys(("baseline_gpu", "epoch_samples", "budgets_usd"), _HARDWARE),
    **dict.fromkeys(("purchase_usd", "used_hours_per_month", "life_months", "opex_usd_per_gpu_hour"), _HARDWARE),
    **dict.fromkeys(("samples_per_second_tolerance_pct", "memory_tolerance_pct", "temperature_tolerance_c"), _NODES),
    **dict.fromkeys(("noise_floor", "multi_gpu_seq_length"), _NODES),
    **dict.fromkeys(("past_tolerance_pct", "also_red", "levels", "drill_node", "drill_slowdown_pct"), _NODES),
}


def applies_to(name: str, campaign_kind: CampaignKind) -> bool:
    return campaign_kind in _ONLY.get(name, frozenset(CampaignKind))
