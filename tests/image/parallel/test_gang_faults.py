"""Four nodes with a real network between them, a rank on each: the one that is slow or hangs, or has a slow link."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.result import HANG, Phase, RunResult
from bench_image.contract.spec import RunSpec
from bench_image.process.rank_report import read_reports
from tests.builders import error_of
from tests.builders.image_processes import ENDLESS, descendants, make_spec
from tests.builders.network_nodes import Network, network, result_of, unavailable
from tests.builders.warm_processes import WarmProcess
from trainbench.judging.gangs import SLOW_RANK, link_findings, played, slow_rank_findings
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import make_plan
from trainbench.planning.planners import PLANNERS

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=unavailable() or "")
NODES = tuple(f"node-{i}" for i in range(1, 5))
VICTIM = "node-3"  # its rank is 2
LIMIT_PCT = 100.0  # of a machine with fewer cores than ranks


@pytest.fixture(scope="module")
def wires() -> Iterator[Network]:
    with network(len(NODES)) as made:
        yield made


def gang_spec(**changes: object) -> RunSpec:
    gang = {"peers": NODES[1:], "nodes": len(NODES), "gpus_per_node": 1, "strategy": Strategy.DDP}
    work = {"recipe": Recipe.FULL, "micro_batch_size": 8, "seq_length": 64, "repeats": 1}
    return make_spec(**gang | work | changes)


def rank_when_it_trains(pod: WarmProcess, folder: Path) -> psutil.Process:
    """The pod's rank, once its windows have begun."""
    while [report.phase for report in read_reports(folder)] != [Phase.MEASURE]:
        assert pod.poll() is None, pod.communicate()
        time.sleep(0.05)
    return descendants(pod)[-1]  # of torchrun


def test_a_healthy_gang_names_nobody(wires: Network, tmp_path: Path) -> None:
    spec = gang_spec()
    result = result_of(spec, wires.start(spec, tmp_path), tmp_path)

    assert result.error is None
    assert [finding for finding in slow_rank_findings([result], LIMIT_PCT) if finding.category == SLOW_RANK] == []


def test_a_rank_that_gets_a_twentieth_of_its_core_is_named_as_slow(wires: Network, tmp_path: Path) -> None:
    spec = gang_spec()
    pods = wires.start(spec, tmp_path, hang_share=0.9)  # on a slow, busy machine its step takes half a minute
    rank = rank_when_it_trains(pods[VICTIM], tmp_path / VICTIM)

    def take_turns() -> None:
        while rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE:
            rank.suspend()
            time.sleep(0.285)
            rank.resume()
            time.sleep(0.015)  # less than a step computes: no step goes by without a stop

    other = threading.Thread(target=take_turns)
    other.start()
    result = result_of(spec, pods, tmp_path)
    other.join()

    assert result.error is None
    (finding,) = (finding for finding in slow_rank_findings([result], LIMIT_PCT) if finding.category == SLOW_RANK)
    assert finding.nodes == (VICTIM,)
    assert finding.summary.startswith(f"rank 2 ({VICTIM}) computes ")


def test_a_rank_that_is_stopped_is_named_and_ends_the_gang(wires: Network, tmp_path: Path) -> None:
    spec = gang_spec(**ENDLESS)
    pods = wires.start(spec, tmp_path)
    rank_when_it_trains(pods[VICTIM], tmp_path / VICTIM).send_signal(signal.SIGSTOP)
    for node in set(NODES) - {VICTIM}:
        pods[node].communicate()
    pods[VICTIM].kill()  # as the operator deletes the rest of a gang
    result = result_of(spec, pods, tmp_path)

    assert (error_of(result).kind, error_of(result).rank) == (HANG, 2)
    assert error_of(result).message.startswith(f"{VICTIM}: rank 2 ({VICTIM}) did not answer: it was last seen in step ")
    assert "waited at gloo:" in error_of(result).message


def test_a_search_names_the_node_whose_link_is_slow(wires: Network, tmp_path: Path) -> None:
    planner = PLANNERS[CampaignKind.INTERCONNECT]
    values = {"device": "cpu", "model": "tiny", "seq_length": 64, "link_top_bytes": 2**20, "link_slower_pct": 75}
    values |= {"warmup_steps": 2, "measured_steps": 2, "max_measured_steps": 2}  # the sweep tells, not the training
    fleet = Fleet(nodes=tuple(GpuNode(name=node, num_gpus=0) for node in NODES))
    plan = make_plan(planner.params(values, locally=False), fleet, "c", CampaignKind.INTERCONNECT)
    results: list[RunResult] = []
    wires.slow(VICTIM)
    while due := played(plan, results).due:
        folders = [tmp_path / spec.identity.run_id for spec in due]
        gangs = [wires.start(spec, folder) for spec, folder in zip(due, folders, strict=True)]
        results += [result_of(*gang) for gang in zip(due, gangs, folders, strict=True)]
    wires.mend(VICTIM)

    (finding,) = link_findings(plan, results)
    assert finding.nodes == (VICTIM,), finding.measured
