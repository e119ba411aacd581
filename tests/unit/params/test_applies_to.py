"""Which parameters each question asks."""

from __future__ import annotations

import pytest

from trainbench.params.applies_to import _ONLY, applies_to
from trainbench.params.campaign_kind import Question
from trainbench.params.campaign_params import FIELDS
from trainbench.planning.planners import PLANNERS


def test_only_parameters_that_there_are_belong_to_a_question() -> None:
    assert _ONLY.keys() <= FIELDS.keys()


@pytest.mark.parametrize("question", PLANNERS)
@pytest.mark.parametrize("locally", [False, True])
def test_a_question_begins_with_valid_values_of_what_it_asks(question: Question, locally: bool) -> None:
    planner = PLANNERS[question]

    planner.params({}, locally=locally)
    # what LOCAL_DEFAULTS sets for all questions may not concern this one
    assert [name for name in planner.defaults if not applies_to(name, question)] == []
    assert [name for name in planner.local_defaults if not applies_to(name, question)] == []


def test_what_is_not_listed_belongs_to_all() -> None:
    assert all(applies_to("nodes", question) for question in Question)
    assert [question for question in Question if applies_to("variants", question)] == [Question.CONFIGURATIONS]
