"""The planner of each kind of campaign, and the defaults of its form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import LOCAL_DEFAULTS, BenchmarkParams, parse_params
from trainbench.planning import configuration_plan, scaling_plan, survey_plan
from trainbench.planning.nodes import Fleet
from trainbench.planning.plan import LOCAL_NIGHT, NIGHT, Plan, make_plan


class Planner(NamedTuple):
    """A planner with its form's defaults. `local_defaults` override them in a trial on a machine without a GPU."""

    make: Callable[[BenchmarkParams, Fleet, str], Plan]
    defaults: Mapping[str, Any] = {}
    local_defaults: Mapping[str, Any] = {}

    def starts_with(self, *, locally: bool) -> dict[str, Any]:
        return {**self.defaults, **({**LOCAL_DEFAULTS, **self.local_defaults} if locally else {})}

    def params(self, values: Mapping[str, Any], *, locally: bool) -> BenchmarkParams:
        """The checked parameters. Raises ParamsError."""
        return parse_params(values, self.starts_with(locally=locally))


PLANNERS: Mapping[CampaignKind, Planner] = {
    CampaignKind.NODES: Planner(make_plan, NIGHT, LOCAL_NIGHT),
    CampaignKind.STRATEGIES: Planner(
        scaling_plan.make_scaling_plan, scaling_plan.DEFAULTS, scaling_plan.LOCAL_DEFAULTS
    ),
    CampaignKind.CONFIGURATIONS: Planner(
        configuration_plan.make_configuration_plan, configuration_plan.DEFAULTS, configuration_plan.LOCAL_DEFAULTS
    ),
    CampaignKind.HARDWARE: Planner(survey_plan.make_survey_plan, survey_plan.DEFAULTS, survey_plan.LOCAL_DEFAULTS),
}
