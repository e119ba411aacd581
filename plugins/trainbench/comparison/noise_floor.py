"""The noise floor (A/A): how much equal runs differ on each node, and which deviation can be detected.

**Three scales.** *Within runs*: windows of one pod about their mean. *Between runs*: a node's runs about their mean;
the drift that all nodes share is left in for one node and taken out of the fleet's figure, because nodes of one round
share it. *Between nodes*: the spread of the nodes' means beyond the noise of their runs, because good nodes differ.
All are standard deviations of log samples/s, so 0.01 is 1 %. A 95 % interval is that of a normal distribution's
standard deviation: sd * sqrt(df / chi2), with the 97.5 % and 2.5 % quantiles of chi2 with df degrees of freedom.

**Detectable deviation.** A node's median of k runs against the median of its m peers' medians errs by
`sd * sqrt(c(k) + c(m) * c(k))`, c(n) * sd^2 being the variance of a median of n; against its own past of P campaigns by
`sd * sqrt(c(k) + c(P) * c(k))`. As in a night's verdict, a deviation differs from chance where chance shows it anywhere
in the fleet in one night of a hundred; it is detected in 19 of 20 nights another 1.645 errors beyond. Between peers the
nodes' own differences come on top, which no number of rounds makes smaller: `sqrt(sd^2 c(k) + sd_nodes^2)` stands for
one node.

Where each GPU measured by itself (strategy `independent`), each is judged by itself, so each has its own line. GPUs of
one pod err together in part: the noise between runs is pooled from estimates with one GPU of each node in them, and
their degrees of freedom are those of one such estimate. A node's own past is that of its slowest GPU.

The days are not in it: what differs from night to night is seen by a node's own past only.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import RunResult
from trainbench.core.formats import count, share
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Tolerances, gpu_title
from trainbench.judging import noise
from trainbench.judging.node_runs import NodeRuns, by_group, judged_rate, judged_units
from trainbench.judging.noise import Noise, Run
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import NOISE_FLOOR_ROUNDS
from trainbench.results.campaign import Campaign

ROUNDS = (1, 2, 3, 5)
Z_95 = 1.6449  # one-sided 95 % of the normal distribution
PAST_CAMPAIGNS = 10


class Spread(Frozen):
    """A standard deviation with its 95 % interval, all in percent of samples/s."""

    sd_pct: float
    low_pct: float
    high_pct: float
    degrees_of_freedom: int


class NodeNoise(Frozen):
    """The noise of one node, or of one GPU of it that measured by itself."""

    node: str
    gpu: str | None = None  # "GPU 3 (GPU-5f3c...)"; None: the node as a whole
    num_runs: int
    samples_per_second: float  # mean of the runs
    between: Spread | None  # None: one run
    within: Spread | None  # None: no run had several windows
    range_pct: float  # (fastest - slowest run) / mean


class Floor(Frozen):
    """The noise of one work on one kind of GPU."""

    group_id: str
    gpu_name: str | None
    nodes: tuple[NodeNoise, ...]
    between: Spread | None  # without the common effect of a round, which is no noise between peers
    between_own: Spread | None  # with it, because a node's own past had other rounds
    within: Spread | None
    nodes_sd_pct: float | None  # of all GPUs where each measured by itself; None: fewer than three nodes

    @property
    def num_nodes(self) -> int:
        return len({node.node for node in self.nodes})

    @property
    def is_per_gpu(self) -> bool:
        return any(node.gpu for node in self.nodes)

    def detectable_pct(self, rounds: int, peers: int | None, *, in_19_of_20: bool = False) -> float | None:
        """Smallest slowdown that differs from chance at `rounds` runs against `peers` nodes; None: against its own
        past. `in_19_of_20`: that is detected in 19 of 20 nights.
        """
        spread = self.between_own if peers is None else self.between
        if spread is None:
            return None
        of_node = noise.median_variance(rounds)
        others = noise.median_variance(PAST_CAMPAIGNS if peers is None else peers)
        sd = spread.sd_pct / 100
        apart = 0.0 if peers is None else (self.nodes_sd_pct or 0.0) / 100
        error = math.sqrt((sd**2 * of_node + apart**2) * (1 + others))
        units = 1 if peers is None else peers + 1
        times = noise.chance_quantile(spread.degrees_of_freedom, units) + (Z_95 if in_19_of_20 else 0.0)
        return noise.to_pct(times * error)


def measures_noise(campaign: Campaign) -> bool:
    """Whether the campaign is a noise floor by its kind, or a node repeated one work often enough."""
    if campaign.campaign_kind is CampaignKind.NOISE:
        return True
    good = (result.spec.identity for result in campaign.results if result.error is None)
    times = Counter((run.group_id, run.node) for run in good)
    return max(times.values(), default=0) >= NOISE_FLOOR_ROUNDS


def floors(results: Sequence[RunResult]) -> tuple[Floor, ...]:
    """The noise of each measured work and kind of GPU, without gangs and drills."""
    alone = [result for result in results if result.spec.placement.nodes == 1 and not result.spec.drill]
    floors_or_none = (_floor(*key, members) for key, members in by_group(alone, ()).items())
    return tuple(floor for floor in floors_or_none if floor)


def _floor(group_id: str, gpu_name: str | None, members: Sequence[NodeRuns]) -> Floor | None:
    units = [unit for unit in judged_units(members) if unit.rates]
    if not units:
        return None
    rates, between = [unit.rates for unit in units], _between(units)
    # The rate that the history keeps of a node: of GPUs that measured by themselves the slowest one's.
    own = [
        [Run(r.spec.identity.round, rate, ()) for r in member.valid if (rate := judged_rate(r)) and rate > 0]
        for member in members
    ]
    return Floor(
        group_id=group_id,
        gpu_name=gpu_name,
        nodes=tuple(_node(unit) for unit in units),
        between=_spread(between),
        between_own=_spread(noise.between_runs(own, rounds_are_shared=False)),
        within=_spread(noise.within_runs(rates)),
        nodes_sd_pct=_nodes_sd_pct(rates, between) if len({unit.node for unit in units}) > 2 else None,
    )


def _between(units: Sequence[NodeRuns]) -> Noise | None:
    """Noise between runs, pooled over the first GPU of each node, the second of each and so on. On one node alone the
    rounds stay in: what a pod does to all of its GPUs is noise in a comparison with another node's.
    """
    of_nodes = grouped((unit.node, unit) for unit in units)
    of_place = grouped((place, unit.rates) for own in of_nodes.values() for place, unit in enumerate(own))
    # The mean of the places' variances, weighted by their degrees of freedom. GPUs of one node share its host, so the
    # result has the degrees of freedom of one place.
    comparable = [rates for rates in of_place.values() if len(rates) > 1 or len(of_nodes) == 1]
    estimates = [one for rates in comparable if (one := noise.between_runs(rates, rounds_are_shared=True))]
    pooled = noise.joined(estimates)
    return pooled and pooled._replace(degrees_of_freedom=max(one.degrees_of_freedom for one in estimates))


def _node(member: NodeRuns) -> NodeNoise:
    rates = [run.rate for run in member.rates]
    mean = statistics.fmean(rates)
    return NodeNoise(
        node=member.node,
        gpu=gpu_title(member.gpu.index, member.gpu.uuid) if member.gpu else None,
        num_runs=len(rates),
        samples_per_second=mean,
        between=_spread(noise.between_runs([member.rates], rounds_are_shared=False)),
        within=_spread(noise.within_runs([member.rates])),
        range_pct=100 * (max(rates) - min(rates)) / mean,
    )


def _nodes_sd_pct(rates: Sequence[Sequence[Run]], between: Noise | None) -> float | None:
    """The variance of the nodes' means is that of the nodes plus that of a mean of k runs. Of their GPUs likewise."""
    if len(rates) < 3 or between is None:
        return None
    means = [statistics.fmean(math.log(run.rate) for run in runs) for runs in rates]
    of_mean = between.sd**2 * statistics.fmean(1 / len(runs) for runs in rates)
    return 100 * math.sqrt(max(statistics.variance(means) - of_mean, 0.0))


def _spread(estimate: Noise | None) -> Spread | None:
    if estimate is None:
        return None
    from scipy.special import chdtri  # of (degrees of freedom, upper tail)

    df = estimate.degrees_of_freedom
    return Spread(
        sd_pct=100 * estimate.sd,
        low_pct=100 * estimate.sd * math.sqrt(df / chdtri(df, 0.025)),
        high_pct=100 * estimate.sd * math.sqrt(df / chdtri(df, 0.975)),
        degrees_of_freedom=df,
    )


USUAL_NODES = 4  # where one node alone was measured
STEP_PCT = 0.5  # limits are proposed in steps of this


def headline(campaign: Campaign) -> str | None:
    """The noisiest work in one sentence; None where nothing was repeated."""
    measured = [(floor.between.sd_pct, floor) for floor in floors(campaign.results) if floor.between]
    if not measured:
        return None
    _, floor = max(measured, key=lambda pair: pair[0])
    nodes = num_nodes(floor)
    slowdown_pct = share(floor.detectable_pct(1, nodes - 1, in_19_of_20=True), 2)
    between = floor.between
    assert between is not None
    return (
        f"Equal runs differ by {share(between.sd_pct, 2)} here (standard deviation, 95 %: {share(between.low_pct, 2)} "
        f"to {share(between.high_pct, 2)}); one round on {count(nodes, 'node')} detects a "
        f"{'GPU' if floor.is_per_gpu else 'node'} that is {slowdown_pct} slow."
    )


def num_nodes(floor: Floor) -> int:
    return floor.num_nodes if floor.num_nodes > 2 else USUAL_NODES


def noise_advice(floor: Floor, params: Mapping[str, object]) -> Iterator[str]:
    """On the limit for samples/s: whether chance alone reaches it, and what would help."""
    given, nodes = params.get("samples_per_second_tolerance_pct"), num_nodes(floor)
    limit = float(given) if isinstance(given, int | float) else Tolerances().samples_per_second_pct
    chance = floor.detectable_pct(1, nodes - 1)
    if chance is None:
        yield "The limit for samples/s cannot be judged: no node ran twice."
        return
    name = f"The limit of ±{share(limit)} for samples/s"
    reached = f"with one round on {count(nodes, 'node')} chance alone reaches {share(chance, 2)}"
    if chance <= limit:
        yield f"{name} is sensible: {reached}."
    else:  # the fewest rounds whose median brings chance below the limit, else a wider limit
        reach = {rounds: floor.detectable_pct(rounds, nodes - 1) or chance for rounds in ROUNDS}
        enough = next((rounds for rounds, pct in reach.items() if pct <= limit), None)
        most = reach[ROUNDS[-1]]
        way = f"take {enough} rounds, or" if enough else f"{ROUNDS[-1]} rounds are not enough ({share(most, 2)}):"
        wider = STEP_PCT * math.ceil((chance if enough else most) / STEP_PCT)
        yield f"{name} is too tight: {reached}; {way} raise it to ±{share(wider)}."
    if floor.nodes_sd_pct is None:
        yield "The difference between good nodes is unknown: it needs three nodes. The figures hold for equal nodes."
    elif floor.between and floor.nodes_sd_pct > floor.between.sd_pct:
        units = "GPUs" if floor.is_per_gpu else "nodes"
        yield (
            f"The {units} differ by {share(floor.nodes_sd_pct, 2)} (standard deviation) beyond the noise of their "
            "runs. More rounds do not make the comparison with peers more sensitive; the own past is free of it."
        )
