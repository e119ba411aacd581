"""Runs over several nodes: which node, link or group of an interconnect search is bad, and which rank of any gang makes
the others wait.

A search is played again from its results: what each group made, what runs next, who is to blame. A group is slow beside
the other groups of its round, by more than the limit and more than they scatter, or below the promised share of its
links' rate. Like rates are compared: a bus bandwidth holds for any number of ranks (nccl-tests, PERFORMANCE.md), a
latency and a training only for equally many.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench_image.contract.links import Collective
from bench_image.contract.result import RankSummary, RunResult, Status
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.core.formats import count, figure, listing, one_line, share
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import BAD_LINK, NODE_OF_GANGS, Finding, Level
from trainbench.judging.diagnose import NEXT_STEP
from trainbench.judging.node_runs import gpu_index
from trainbench.judging.noise import median_sd, to_pct
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.link_search import MOST_ROUNDS, Culprit, GroupState, GroupTest, LinkSearch, Outcome
from trainbench.planning.plan import Interconnect, Plan
from trainbench.pods.gangs import failed_nodes, node_at_fault
from trainbench.pods.pod_end import INFRASTRUCTURE, NOT_FREE
from trainbench.results.readings import impossible_works

CHANCE_SDS = 3.0
LATENCY_PCT = 50.0  # less than this share of a group's rate of calls is not told from the hosts' scatter
TRAINING, LATENCY = "ddp samples/s per GPU", "all-reduce calls/s"


class Played(NamedTuple):
    """`due`: the runs of the next round; empty: the search is over."""

    search: LinkSearch
    due: tuple[RunSpec, ...]
    outcomes: tuple[Outcome, ...]


def played(plan: Plan, results: Sequence[RunResult]) -> Played:
    """The search up to the first round of which a result is missing."""
    by_run = {result.spec.identity.run_id: result for result in results}
    links = Interconnect(plan.params, plan.known, plan.campaign_id)
    search, outcomes, well = links.search(), list[Outcome](), list[RunResult]()
    for round_ in range(1, MOST_ROUNDS + 1):
        tests = search.due()
        specs = links.specs(tests, round_)
        made = [by_run.get(spec.identity.run_id) for spec in specs]
        runs = [result for result in made if result]
        if not tests or len(runs) < len(made):
            return Played(search, specs, tuple(outcomes))
        told = [outcome_of(test, run, runs, well, plan.params) for test, run in zip(tests, runs, strict=True)]
        well += [run for run, outcome in zip(runs, told, strict=True) if outcome.state is GroupState.PASSED]
        outcomes += told
        search.learn(told)
    return Played(search, (), tuple(outcomes))


def outcome_of(
    test: GroupTest, run: RunResult, of_round: Sequence[RunResult], well: Sequence[RunResult], params: BenchmarkParams
) -> Outcome:
    """What a group made. `of_round`: all groups of its round; `well`: those of earlier rounds that passed."""
    if run.error and (node_at_fault(run) or run.error.kind in NOT_FREE | INFRASTRUCTURE):
        # A node that is at fault or taken says nothing of links: it is left out, and the others run again.
        is_left_out = node_at_fault(run) or run.error.kind in NOT_FREE
        absent = dict.fromkeys(failed_nodes(run) if is_left_out else (), run.error.message)
        return Outcome(test=test, state=GroupState.NOT_RUN, evidence=run.error.message, absent=absent)
    if run.error or run.links is None:
        message = run.error.message if run.error else "it has no figures of its links"
        return Outcome(test=test, state=GroupState.FAILED, evidence=message[:500])
    rates = rates_of(run)
    if unknown := [name for name, rate in rates.items() if rate is None]:
        return Outcome(
            test=test, state=GroupState.FAILED, evidence=f"it has no figure of {listing(map(_written, unknown))}"
        )
    slow = list(_slow(run, [other for other in of_round if other is not run], well, params))
    reached = f"all-reduce {figure(rates[Collective.ALL_REDUCE], 3)} GB/s"
    state = GroupState.SLOW if slow else GroupState.PASSED
    return Outcome(test=test, state=state, evidence="; ".join(slow) or reached)


def rates_of(run: RunResult) -> dict[str, float | None]:
    """Name -> rate, more is better; None: unknown. Bandwidths are those of the best size."""
    if run.links is None:
        return {}
    latency_s, rate = run.links.latency_s(Collective.ALL_REDUCE), run.performance.samples_per_second
    peaks: dict[str, float | None] = {each: run.links.peak_gb_per_s(each) for each in Collective}
    return peaks | {
        LATENCY: 1 / latency_s if latency_s else None,
        TRAINING: rate / run.spec.placement.world_size if rate else None,
    }


def _slow(
    run: RunResult, others: Sequence[RunResult], well: Sequence[RunResult], params: BenchmarkParams
) -> Iterator[str]:
    """A clause for the rate that is furthest behind the other groups, one that names the others, and one for a promise
    that is not kept.
    """
    behind: list[tuple[float, str, str]] = []
    rates = rates_of(run)
    for name, rate in rates.items():
        assert rate is not None, "the caller fails a group with an unknown rate"
        known = _like(run, others, name)
        known = known if len(known) > 1 else known + _like(run, well, name)
        if not known:
            continue
        median = statistics.median(known)
        least = max(params.link_slower_pct, LATENCY_PCT if name == LATENCY else 0.0)
        behind_pct, limit_pct = 100 * (1 - rate / median), max(least, to_pct(chance_among(known)))
        if behind_pct > limit_pct:
            beside = (
                f"the median of {count(len(known), 'other group')} ({figure(median, 3)}), limit {share(limit_pct, 0)}"
            )
            behind.append((behind_pct, name, f"{_with_unit(name, rate)}, {share(behind_pct, 0)} below {beside}"))
    if behind:
        behind.sort(key=lambda each: -each[0])  # stable: all-reduce comes first
        yield behind[0][2]
    if len(behind) > 1:
        yield f"also {listing(f'{_written(name)} {share(behind_pct, 0)}' for behind_pct, name, _ in behind[1:])}"
    rate, promised = rates[Collective.ALL_REDUCE], params.link_gb_per_s if _has_inner(run) else None
    if rate and promised and rate < promised * params.link_share_pct / 100:
        yield (
            f"{_with_unit(Collective.ALL_REDUCE, rate)} is {share(100 * rate / promised, 0)} of the promised "
            f"{figure(promised, 3)}, limit {share(params.link_share_pct, 0)}"
        )


def _written(name: str) -> str:
    return name.replace("_", "-")


def _with_unit(name: str, rate: float) -> str:
    return f"{_written(name)} {figure(rate, 3)}{' GB/s' if name in (*Collective,) else ''}"


def chance_among(values: Sequence[float]) -> float:
    """How far chance brings one of these from their median, as a logarithm, because noise of the hosts is a factor."""
    return CHANCE_SDS * median_sd([math.log(value) for value in values])


def _like(run: RunResult, others: Sequence[RunResult], name: str) -> list[float]:
    """The rates of groups that may be compared with this one."""
    by_size = name in (LATENCY, TRAINING)
    alike = [
        rates_of(other).get(name)
        for other in others
        if other.status is Status.OK
        and _has_inner(other) is _has_inner(run)
        and (not by_size or other.spec.placement.world_size == run.spec.placement.world_size)
    ]
    return [rate for rate in alike if rate]


def _has_inner(run: RunResult) -> bool:
    return run.spec.link_sweep is None or run.spec.link_sweep.inner_link


def link_findings(plan: Plan, results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Who is to blame, with evidence and next step; the nodes that were left out; why a search found nobody."""
    if plan.campaign_kind is not CampaignKind.INTERCONNECT:
        return ()
    if impossible_works(results) and all(result.error for result in results):
        return ()  # which says it all
    search, due, _ = played(plan, results)
    told = set(map(node_at_fault, results))
    findings = [_finding(culprit) for culprit in search.culprits]
    if search.stopped:
        findings.append(_of_all(plan, search.stopped))
    if due:
        left = listing(node for spec in due for node in spec.identity.nodes)
        findings.append(_of_all(plan, f"the search is not over: {count(len(due), 'group')} did not run ({left})"))
    findings += [
        Finding(
            level=Level.WARNING,
            category="left_out_of_gangs",
            nodes=(node,),
            measured="no gang",
            expected="a gang",
            summary=f"was left out of the search: {why}",
            resolution="run `interconnect` again for it, with one healthy node, when it is free",
        )
        for node, why in search.absent.items()
        if node not in told
    ]
    return tuple(findings)


def _of_all(plan: Plan, text: str) -> Finding:
    return Finding(
        level=Level.ERROR,
        category=BAD_LINK,
        item=plan.campaign_id,
        measured=text,
        expected="groups that pass",
        summary=text,
        resolution="look at what all nodes share: network of the Pod template, NCCL_SOCKET_IFNAME and NCCL_IB_HCA, "
        "image and driver, the switches, the limits of this run; then run it again",
    )


_LINK = {
    "inner": "it shows only with the inner link (NVLink): look at `nvidia-smi nvlink -e` and the node's Xids",
    "network": "it shows only without the inner link: look at its network adapters, cables and ports",
    "any": "it shows with every link that was tried: look at its network adapters, cables and ports, then at its GPUs",
}
# Kind of culprit -> what it does; and the next step, where its link says none.
_BLAME = {
    "node": ("makes gangs slow or fail beside different nodes that are well", None),
    "pair": ("are slow or fail together; each passes beside others: the way between them is bad", None),
    "group": (
        "its nodes are slow or fail with those of other groups, and pass among themselves",
        "look at the uplink of its switch",
    ),
    "groups": (
        "the way between these groups is bad; each reaches others", "look at the switches and cables between them",
    ),
    "once": (
        "failed together, and passed in parts and again: it did not show twice",
        "run `interconnect` again for these nodes",
    ),
    "open": (
        "fail or are slow together, and which of them is bad is not settled: no other node was free and well",
        "run `interconnect` again with these nodes and one more that is well",
    ),
}  # fmt: skip


def _finding(culprit: Culprit) -> Finding:
    shown = [each for each in culprit.evidence if each.is_bad or each.state is GroupState.PASSED]
    shown.sort(key=lambda each: not each.is_bad)
    told = "; ".join(f"{listing(each.test.nodes, 4)}: {each.state}, {each.evidence}" for each in shown)[:2000]
    (summary, next_step), between = _BLAME[culprit.kind], culprit.kind in ("group", "groups")
    if culprit.kind == "node" and culprit.groups:
        summary += f", only outside of {culprit.groups[0]}: its own way out of it is bad"
    return Finding(
        level=Level.WARNING if culprit.kind == "once" else Level.ERROR,
        category=BAD_LINK,
        nodes=() if between else culprit.nodes,
        item=" and ".join(culprit.groups) if between else None,
        measured=told or "no figure",
        expected="what other groups make",
        summary=summary,
        resolution=next_step or _LINK[culprit.link],
    )


def gang_node_findings(results: Sequence[RunResult]) -> Iterator[Finding]:
    """One alarm for each node by which gangs failed that their other nodes could run."""
    for node, runs in grouped((node, run) for run in results if (node := node_at_fault(run))).items():
        gangs, error = count(len(runs), "gang"), runs[0].error
        assert error is not None
        said = one_line(error.message.removeprefix(f"{node}: "), most=400)
        yield Finding(
            level=Level.ERROR,
            category=NODE_OF_GANGS,
            nodes=(node,),
            measured=error.kind,
            expected="work that begins, as on the other nodes",
            summary=f"ended {gangs}, and no other node is at fault: {said}",
            resolution=NEXT_STEP.get(
                error.kind,
                "compare what its pods find (volumes, files, image, secrets) with what the others do, then repeat",
            ),
        )


SLOW_RANK, SLOW_EXCHANGE = "slow_rank", "slow_exchange"
EXCHANGE_PCT = 25.0  # of a step: where the exchange takes less, faster links gain little
PROFILE_PCT = 5.0  # healthy H200s were 20 to 72 % apart under zero2 and zero3, where profiled steps took 9 to 33 % more


class SlowRank(NamedTuple):
    """`longer_pct`: own time above the median of the others; `wait_pct`: what they wait more than it, of its step."""

    rank: RankSummary
    longer_pct: float
    wait_pct: float


def slow_rank_findings(results: Sequence[RunResult], limit_pct: float) -> tuple[Finding, ...]:
    """One finding for each slow rank of each node, from the run in which it is slowest, and one for the exchange."""
    runs = []
    for run in results:  # of which several ranks profiled equally many steps, all of them with a time of its own
        num_steps = {len(rank.own_steps_s) if all(rank.own_steps_s) else 0 for rank in run.ranks}
        if len(run.ranks) > 1 and len(num_steps) == 1 and 0 not in num_steps:
            runs.append(run)
    slow = [(run, one) for run in runs if not profile_sets_pace(run) for one in slow_ranks(run.ranks, limit_pct)]
    places = grouped(((run.spec.identity.nodes, place(run, one.rank)), (run, one)) for run, one in slow)
    findings = [_slow_rank_finding(of_place, runs, limit_pct) for of_place in places.values()]
    named = {run.spec.identity.run_id for run, _ in slow}
    shares = [(exchange_pct(run.ranks), run) for run in runs if run.spec.identity.run_id not in named]
    if long := sorted((pair for pair in shares if pair[0] >= EXCHANGE_PCT), key=lambda pair: -pair[0]):
        pct, run = long[0]
        findings.append(
            Finding(
                level=Level.INFO,
                category=SLOW_EXCHANGE,
                item=run.spec.identity.run_id,
                measured=f"{share(pct)} of a step",
                expected=f"less than {share(EXCHANGE_PCT, 0)}",
                summary=f"no rank: communication itself is slow, {share(pct, 0)} of each step{_links(run)}"
                + _in_runs(len(long), len(runs)),
                resolution="compare the links with their data sheets (`nvidia-smi nvlink -s`, the network of the Pod "
                "template); a larger batch or more accumulation exchanges less often",
            )
        )
    return tuple(findings)


def profile_sets_pace(run: RunResult) -> bool:
    """Whether the host launches kernels one by one and the profiler lengthens its steps: then a rank's own time is how
    its host bears the profiler, and says nothing about its GPU.
    """
    launched = run.chosen is not None and run.chosen.execution.get("CUDA graph") == "off"
    measured = run.performance.step_time
    if run.spec.work.device is not Device.CUDA or not launched or measured is None:
        return False
    profiled_s = [
        own + wait for rank in run.ranks for own, wait in zip(rank.own_steps_s, rank.step_waits_s, strict=True)
    ]
    return 100 * (statistics.median(profiled_s) / measured.median_s - 1) > PROFILE_PCT


def slow_ranks(ranks: Sequence[RankSummary], limit_pct: float) -> Iterator[SlowRank]:
    own_s = {rank.rank: statistics.median(rank.own_steps_s) for rank in ranks}
    wait_s = {rank.rank: statistics.median(rank.step_waits_s) for rank in ranks}
    for rank in ranks:
        others = [other for other in ranks if other is not rank]
        theirs_s = [own_s[other.rank] for other in others]
        longer_pct = 100 * (own_s[rank.rank] / statistics.median(theirs_s) - 1)
        if longer_pct <= max(limit_pct, 100 * chance_among(theirs_s)):
            continue
        of_steps = zip(rank.own_steps_s, zip(*(other.own_steps_s for other in others), strict=True), strict=True)
        if all(own > statistics.median(theirs) for own, theirs in of_steps):
            more_s = statistics.median(wait_s[other.rank] for other in others) - wait_s[rank.rank]
            yield SlowRank(rank, longer_pct, 100 * max(0.0, more_s) / (own_s[rank.rank] + wait_s[rank.rank]))


def exchange_pct(ranks: Sequence[RankSummary]) -> float:
    """The least wait of any rank as a share of its step, median over the steps."""
    shares_pct = [
        [100 * wait_s / (own_s + wait_s) for own_s, wait_s in zip(rank.own_steps_s, rank.step_waits_s, strict=True)]
        for rank in ranks
    ]
    least_pct: list[float] = [min(step) for step in zip(*shares_pct, strict=True)]
    return statistics.median(least_pct)


def place(run: RunResult, rank: RankSummary) -> str:
    """ "node-3, GPU 1"; on the CPU the node alone."""
    name = run.spec.identity.nodes[rank.rank // run.spec.placement.gpus_per_node]
    return f"{name}, GPU {gpu_index(run, rank)}" if run.spec.work.device is Device.CUDA else name


def _slow_rank_finding(
    of_place: Sequence[tuple[RunResult, SlowRank]], runs: Sequence[RunResult], limit_pct: float
) -> Finding:
    run, slow = max(of_place, key=lambda pair: pair[1].longer_pct)
    where, number = place(run, slow.rank), slow.rank.rank
    so = _in_runs(len(of_place), sum(other.spec.identity.nodes == run.spec.identity.nodes for other in runs))
    return Finding(
        level=Level.WARNING,
        category=SLOW_RANK,
        item=run.spec.identity.run_id,
        nodes=(where.split(", ", maxsplit=1)[0],),
        measured=f"{share(slow.longer_pct)} longer",
        expected=f"at most {share(limit_pct)}",
        summary=f"rank {number} ({where}) computes {share(slow.longer_pct, 0)} longer than the median of the others "
        f"and makes them wait {share(slow.wait_pct, 0)} of each step{_links(run)}{so}",
        resolution="compare clock, temperature and Xids of its GPU, and the load of its host, with the others'",
    )


def _links(run: RunResult) -> str:
    rate = run.probes.allreduce_bus_gb_per_s
    return f"; the links all-reduce {figure(rate, 3)} GB/s" if rate else ""


def _in_runs(slow: int, of: int) -> str:
    return f"; so in {slow} of {of} runs" if of > 1 else ""
