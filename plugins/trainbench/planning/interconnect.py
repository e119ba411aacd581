"""The gangs of an interconnect search: its groups, and the specs of a round."""

from __future__ import annotations

from collections.abc import Sequence

from bench_image.contract.links import LinkSweep
from bench_image.contract.options import Strategy
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.core.formats import count, duration
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.link_search import MOST_ROUNDS, Bound, GroupTest, LinkSearch, bound_of, groups_of
from trainbench.planning.nodes import GpuNode
from trainbench.planning.work import spec_of


class Interconnect:
    """A fleet whose links are searched: `nodes` have one kind of GPU."""

    def __init__(self, params: BenchmarkParams, nodes: Sequence[GpuNode], campaign_id: str) -> None:
        self._params, self._campaign_id = params, campaign_id
        there = [node.num_gpus_per_run for node in nodes if node.num_gpus_per_run]
        self._gpus = min([*filter(None, [params.gpus_per_node]), *there], default=1)
        self._resource = nodes[0].gpu_resource
        labels = {node.name: node.topology for node in nodes if node.topology}
        self.groups = groups_of([node.name for node in nodes], labels)
        # One GPU has no link within its node.
        self.has_inner_link = params.work.device is Device.CUDA and self._gpus > 1

    def search(self) -> LinkSearch:
        return LinkSearch(self.groups, has_inner_link=self.has_inner_link)

    @property
    def bound(self) -> Bound:
        return bound_of(self.groups, has_inner_link=self.has_inner_link)

    @property
    def promise(self) -> str:
        """What the search takes at most, in one sentence."""
        bound, rounds = self.bound, min(self.bound.rounds, MOST_ROUNDS)
        most = duration(rounds * self._params.timeout_s)
        return (
            f"{count(len(self.groups), 'group')}: {bound.healthy_runs} runs in {count(bound.healthy_rounds, 'round')} "
            f"where all are well; at most {bound.runs} runs in {count(rounds, 'round')} and {most}, by timeout_s "
            f"{self._params.timeout_s:g}, beside the waiting for busy nodes"
        )

    def specs(self, tests: Sequence[GroupTest], round_: int) -> tuple[RunSpec, ...]:
        """One run for each group."""
        return tuple(
            spec_of(
                self._params,
                Strategy.DDP,
                test.nodes,
                self._gpus,
                self._campaign_id,
                round_,
                self._resource,
                LinkSweep(top_bytes=self._params.link_top_bytes, inner_link=test.inner_link),
            )
            for test in tests
        )
