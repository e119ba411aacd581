"""Runs of the parameters that cannot run: part of the plan, so that the report has a row for each."""

from __future__ import annotations

from bench_image.contract.frozen import Frozen
from bench_image.contract.options import Recipe, Strategy


class Skipped(Frozen):
    """A combination that will not run, and why. `nodes`: those that it would have run on; none: no node in particular.

    `label`: the name under which the plan would have run it. When other work of the plan is the very same, `group_id`
    is that work's, and its figures hold here too.
    """

    what: str
    reason: str
    strategy: Strategy | None = None
    gpus_per_node: int | None = None
    nodes: tuple[str, ...] = ()
    group_id: str | None = None  # of the runs that there are not; None: no run can be described
    label: str | None = None
    model: str | None = None  # of a survey; None: all of its models
    recipe: Recipe | None = None  # of a survey; None: all of its recipes
    gpu_product: str | None = None  # of the nodes, as far as it is known
