"""When a campaign acts on nodes at all, and that a defect in it costs nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bench_image.contract.spec import Drill
from tests.builders import make_result
from tests.builders.nights import ENDED_AT, night
from trainbench import pipeline
from trainbench.cluster import node_marks
from trainbench.cluster.node_marks import MarkRefusal, is_due
from trainbench.core.verdicts import PART_FAILED, Level
from trainbench.params.campaign_kind import CampaignKind
from trainbench.results.campaign import Campaign
from trainbench.settings.environment import read_settings

ON = {"TRAINBENCH_KEEP_AWAY": "taint"}
WELL = {"node-1": 10.0}


@pytest.mark.parametrize(
    ("environ", "campaign", "hours_later", "has_later", "expected"),
    [
        (ON, {}, 36, False, True),
        ({"TRAINBENCH_KEEP_AWAY": "label"}, {}, 1, False, True),
        ({}, {}, 1, False, False),
        (ON | {"TRAINBENCH_LAUNCHER": "local"}, {}, 1, False, False),
        (ON, {"campaign_kind": CampaignKind.STRATEGIES}, 1, False, False),
        (ON, {}, 37, False, False),
        (ON | {"TRAINBENCH_FRESH_H": "48"}, {}, 37, False, True),
        (ON, {}, 1, True, False),
    ],
)
def test_only_the_latest_fresh_night_of_the_cluster_acts_and_only_if_enabled(
    environ: dict[str, str], campaign: dict[str, Any], hours_later: int, has_later: bool, expected: bool
) -> None:
    now = ENDED_AT + timedelta(hours=hours_later)

    assert is_due(night(1, WELL, **campaign), read_settings(environ), now, has_later) is expected


def test_a_night_with_a_drill_neither_marks_nor_frees() -> None:
    slowed = night(1, [make_result("node-1"), make_result("node-2", drill=Drill(slowdown_pct=20))])

    assert slowed.is_drill
    assert not is_due(slowed, read_settings(ON), ENDED_AT, has_later=False)


def test_a_defect_in_it_is_one_red_finding_and_the_campaign_stays_as_it_was_judged() -> None:
    def broken(campaign: Campaign) -> Campaign:
        raise KeyError("taints")

    campaign = night(1, WELL)
    kept = pipeline.keep_away(campaign, broken)
    (finding,) = kept.findings

    assert kept.model_copy(update={"findings": ()}) == campaign
    assert (finding.level, finding.category) == (Level.ERROR, PART_FAILED)


def test_without_a_defect_the_campaign_is_that_of_the_acts() -> None:
    (finding,) = node_marks.not_marked([MarkRefusal("node-1", "no room", "look")])
    acted = night(1, WELL, findings=(finding,))

    assert pipeline.keep_away(night(1, WELL), lambda _: acted) is acted
