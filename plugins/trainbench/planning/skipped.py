"""Planned runs without a result: part of the plan, so that the report has a row for each."""

from __future__ import annotations

from bench_image.contract.frozen import Frozen
from bench_image.contract.options import Recipe, Strategy

SKIPPED, NO_RESULT = "skipped", "no result yet"  # the plan left it out; its campaign has not ended, or was stopped


class Skipped(Frozen):
    """A planned combination without a result, with the reason. `nodes`: its intended nodes; empty: no specific node.

    `label`: its name in the plan. Where other work of the plan is equal, `group_id` is that work's, whose figures hold
    here too.
    """

    what: str
    reason: str
    state: str = SKIPPED
    strategy: Strategy | None = None
    gpus_per_node: int | None = None
    nodes: tuple[str, ...] = ()
    group_id: str | None = None  # of the skipped runs; None: their spec cannot be made
    label: str | None = None
    model: str | None = None  # of a survey; None: all of its models
    recipe: Recipe | None = None  # of a survey; None: all of its recipes
    gpu_product: str | None = None  # of the nodes; None: unknown
