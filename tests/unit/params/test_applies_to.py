"""The parameters of each kind of campaign."""

from __future__ import annotations

import pytest

from trainbench.params.applies_to import _ONLY, applies_to
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import FIELDS
from trainbench.planning.planners import PLANNERS


def test_only_parameters_that_there_are_belong_to_a_question() -> None:
    assert _ONLY.keys() <= FIELDS.keys()


@pytest.mark.parametrize("campaign_kind", PLANNERS)
@pytest.mark.parametrize("locally", [False, True])
def test_the_defaults_of_each_kind_are_valid(campaign_kind: CampaignKind, locally: bool) -> None:
    planner = PLANNERS[campaign_kind]

    planner.params({}, locally=locally)
    # what LOCAL_DEFAULTS sets for all questions may not concern this one
    assert [name for name in planner.defaults if not applies_to(name, campaign_kind)] == []
    assert [name for name in planner.local_defaults if not applies_to(name, campaign_kind)] == []


def test_what_is_not_listed_belongs_to_all() -> None:
    assert all(applies_to("nodes", campaign_kind) for campaign_kind in CampaignKind)
    assert [campaign_kind for campaign_kind in CampaignKind if applies_to("variants", campaign_kind)] == [
        CampaignKind.CONFIGURATIONS
    ]
