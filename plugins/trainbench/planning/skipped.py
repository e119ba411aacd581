"""Runs that were asked for and cannot run: planned too, so that the report has a row for each."""

from __future__ import annotations

from bench_image.contract.frozen import Frozen
from bench_image.contract.options import Strategy


class Skipped(Frozen):
    """A combination that was asked for and will not run, and why. `nodes`: those that it was asked for on.

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
    gpu_product: str | None = None  # of the nodes, as far as it is known
