"""What people receive, night after night: whole nights through the pipeline and a real SQLite history, as one golden
text. [V1] to [V12] are mistakes of the first release.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench_image.contract.result import Phase, RunError, RunResult, Status
from tests.builders import STARTED_AT, make_independent, make_result
from tests.builders.played_nights import Night, Nights
from tests.conftest import Golden
from trainbench.alerting.gauges import code
from trainbench.cli.app import exit_code
from trainbench.comparison.noise_floor import floors
from trainbench.core.formats import listing
from trainbench.core.verdicts import Against, Metric, Why
from trainbench.judging.levels import KnownLevel, made_levels
from trainbench.pages.web.banners import text as banner
from trainbench.reporting.report import benchmark_report
from trainbench.reporting.terminal import verdict_table
from trainbench.reporting.verdict_text import verdict

FOUR = ("node-1", "node-2", "node-3", "node-4")
OLD, NEW = {"driver": "575.1"}, {"driver": "580.2"}
Fleet = Callable[..., Nights]  # names of nodes and parameters -> a fleet without a past
Scene = Callable[[Fleet], Nights]
SCENES: dict[str, Scene] = {}


def scene(title: str) -> Callable[[Scene], Scene]:
    def keep(played: Scene) -> Scene:
        SCENES[title] = played
        return played

    return keep


def fleet_of(number: int) -> tuple[str, ...]:
    return tuple(f"node-{i}" for i in range(1, number + 1))


def after(nights: Nights, number: int, rates: Any = None, **more: Any) -> Nights:
    for _ in range(number):
        nights.night(rates, **more)
    return nights


def h200(samples_per_second: float = 10.0) -> KnownLevel:
    result = make_result("elsewhere", samples_per_second, strategy="single")
    (level,) = made_levels([result], "0.2.0", STARTED_AT.date())
    return level.model_copy(update={"origin": "shipped"})


def in_round(rates: Mapping[tuple[str, int], float], node: str, round_: int) -> float:
    """The share of a node in one round; 1 in all others."""
    return rates.get((node, round_), 1.0)


# --- the scenes -------------------------------------------------------------------------------------------------------


@scene("[V1] The driver of three of four nodes changes, and they lose 8 %")
def rollout_on_three(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 8, fields=dict.fromkeys(FOUR, OLD))
    drivers = {node: OLD if node == "node-4" else NEW for node in FOUR}
    return after(nights, 3, dict.fromkeys(FOUR[:3], 0.92), fields=drivers)


@scene("[V1] The driver of all nodes changes, and they lose 8 %")
def rollout_on_all(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 8, fields=dict.fromkeys(FOUR, OLD))
    return after(nights, 5, dict.fromkeys(FOUR, 0.92), fields=dict.fromkeys(FOUR, NEW))


@scene("[V1] node-2 is red at -10 %, then all are at -10 %: it is not well again")
def red_before_all(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 6)
    return after(after(nights, 1, {"node-2": 0.9}), 3, dict.fromkeys(FOUR, 0.9))


@scene("[V2] node-3 is at -15 % in the planned round, and as always in the re-runs")
def chance(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 4)
    return after(after(nights, 1, partial(in_round, {("node-3", 1): 0.85})), 1)


@scene("[V3] node-2 is at -2.6 % for 30 nights, noise 0.3 %")
def always_a_little_slow(fleet: Fleet) -> Nights:
    return after(fleet(*FOUR, noise_pct=0.3), 30, {"node-2": 0.974})


@scene("[V3] node-2 loses 0.5 % a night")
def drift(fleet: Fleet) -> Nights:
    nights = fleet(*FOUR)
    for night in range(16):
        nights.night({"node-2": 1 - 0.005 * night})
    return nights


@scene("[V3] node-2 is at -10 % every second night")
def flapping(fleet: Fleet) -> Nights:
    nights = fleet(*FOUR)
    for night in range(8):
        nights.night({"node-2": 0.9 if night % 2 else 1.0})
    return nights


@scene("[V4] Eight nights with node-2 at +3 %, then node-1 and node-2 swap their names")
def swapped_names(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 8, {"node-2": 1.03})
    return after(nights, 3, {"node-1": 1.03}, machines={"node-1": "node-2", "node-2": "node-1"})


@scene("[V4] Eight nights with node-2 at +3 %, then its GPU is another, at 0 %")
def replaced_gpu(fleet: Fleet) -> Nights:
    return after(after(fleet(*FOUR), 8, {"node-2": 1.03}), 3, machines={"node-2": "new-board"})


def _cluster_changes(later: float, node: str, round_: int) -> float:
    own = 0.92 if node == "node-3" or (node == "node-2" and round_ == 1) else 1.0
    return own * (later if round_ > 1 else 1.0)


for later_pct in (-6, 6):
    scene(f"[V5] node-3 is at -8 %, node-2 in the planned round alone; all are {later_pct:+} % in the re-runs")(
        lambda fleet, later_pct=later_pct: after(  # type: ignore[misc]
            fleet(*fleet_of(8)), 1, partial(_cluster_changes, 1 + later_pct / 100)
        )
    )


@scene("node-3 is at -8 %, and one of the three control nodes is disturbed in the re-runs")
def disturbed_control(fleet: Fleet) -> Nights:
    rates = {("node-1", 2): 0.8, ("node-1", 3): 0.8} | {("node-3", round_): 0.92 for round_ in (1, 2, 3)}
    return after(fleet(*FOUR), 1, partial(in_round, rates))


@scene("Two nodes seem to have changed by one round each, and both are as always in the re-runs")
def two_that_seem_to_change(fleet: Fleet) -> Nights:
    return after(after(fleet("a", "b"), 4), 1, partial(in_round, {("a", 1): 0.9, ("b", 1): 0.96}))


@scene("Two of four seem to have changed: node-1 at -3 % also in the re-runs, node-2 by its one round")
def half_that_seems_to_change(fleet: Fleet) -> Nights:
    rates = {("node-2", 1): 0.91} | {("node-1", round_): 0.97 for round_ in (1, 2, 3)}
    return after(after(fleet(*FOUR), 4), 1, partial(in_round, rates))


@scene("Three of six change by -3 %, and node-1 is at -10 % in the planned round alone: only node-1 runs again")
def half_changed(fleet: Fleet) -> Nights:
    rates = {("node-1", 1): 0.9} | {(f"node-{i}", 1): 0.97 for i in (2, 3, 4)}
    return after(after(fleet(*fleet_of(6)), 4), 1, partial(in_round, rates))


@scene("[V6] Rounds of 7, 7 and 10 samples/s of 10, and 10 in the re-runs")
def two_bad_rounds(fleet: Fleet) -> Nights:
    return after(fleet(*FOUR, rounds=3), 1, partial(in_round, {("node-1", 1): 0.7, ("node-1", 2): 0.7}))


@scene("[V7] Two of three nodes are at -10 %, without a past")
def two_of_three(fleet: Fleet) -> Nights:
    return after(fleet(*fleet_of(3)), 1, {"node-2": 0.9, "node-3": 0.9})


@scene("[V7] Five of eight nodes are at -10 %, without a past")
def five_of_eight(fleet: Fleet) -> Nights:
    return after(fleet(*fleet_of(8)), 1, dict.fromkeys(fleet_of(5), 0.9))


def _wrong_loss(loss: Mapping[str, float], run: RunResult) -> RunResult:
    is_hit = run.spec.identity.node == "node-3"
    return run.model_copy(update={"performance": run.performance.model_copy(update=loss)}) if is_hit else run


for loss in ({"mean_loss": 99.0}, {"mean_loss": 0.0}, {"first_loss": 10.45}):
    scene(f"[V8] node-3 has a {listing(loss).replace('_', ' ')} of {listing(map(str, loss.values()))}")(
        lambda fleet, loss=loss: after(fleet(*FOUR), 1, change=partial(_wrong_loss, loss))  # type: ignore[misc]
    )


@scene("[V9] node-2 is at -10, -10, -6 and -4 %, then as always")
def red_stays(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 2)
    for share in (0.9, 0.9, 0.94, 0.96, 1.0, 1.0):
        nights.night({"node-2": share})
    return nights


@scene("[V10] The temperature of node-1 reads 0, the next night that of no node can be read")
def sensors(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 1, fields={"node-1": {"temperature_c": 0.0}})
    return after(nights, 1, fields={node: {"temperature_c": None} for node in FOUR})


@scene("[V11] One box without a known level; in the third night it is at -30 %")
def one_box(fleet: Fleet) -> Nights:
    return after(after(fleet("box"), 2), 1, {"box": 0.7})


@scene("[V11] One box at its known level; in the second night at -12 %, with another process on its GPU in the third")
def one_box_with_a_level(fleet: Fleet) -> Nights:
    nights = after(fleet("box", levels=[h200(10.03)], noise_pct=0.001), 1)
    nights = after(nights, 1, {"box": 0.88})
    return after(nights, 1, {"box": 0.83}, fields={"box": {"num_other_processes": 1}})


@scene("One box with a known level and noise of 2 %: its past of one night sees nothing, its level does")
def noisy_past(fleet: Fleet) -> Nights:
    return after(after(fleet("box", levels=[h200()], noise_pct=2, rounds=3), 2), 1, {"box": 0.85})


@scene("[V11] Another process takes 17 % of node-2, then nothing; the next night its past is what it was")
def shared(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 3)
    beside = {"node-2": {"num_other_processes": 1}}
    return after(after(after(nights, 1, {"node-2": 0.83}, fields=beside), 1, fields=beside), 1)


@scene("Three of four share their GPUs and lose 17 %; node-4 is at -4 % in the planned round alone")
def shared_beside_one(fleet: Fleet) -> Nights:
    beside = {node: {"num_other_processes": 1} for node in FOUR[:3]}
    rates = {("node-4", 1): 0.96} | {(node, round_): 0.83 for node in beside for round_ in (1, 2, 3)}
    return after(after(fleet(*FOUR), 4), 1, partial(in_round, rates), fields=beside)


@scene("Three of five share their GPUs and lose nothing; the other two, all that count, lose 3 %")
def shared_beside_two(fleet: Fleet) -> Nights:
    beside = {node: {"num_other_processes": 1} for node in FOUR[:3]}
    return after(after(fleet(*fleet_of(5)), 4), 1, {"node-4": 0.97, "node-5": 0.97}, fields=beside)


@scene("node-2 is near the limit on a shared GPU, node-3 slow, and node-1, a control, is evicted in its re-run")
def failed_control(fleet: Fleet) -> Nights:
    def evicted(run: RunResult) -> RunResult:
        is_hit = run.spec.identity.node == "node-1" and run.spec.identity.round > 1
        error = RunError(kind="evicted", message="the node was full", phase=Phase.MEASURE)
        return run.model_copy(update={"status": Status.ERROR, "error": error}) if is_hit else run

    beside = {"node-2": {"num_other_processes": 1}}
    return after(fleet(*fleet_of(5)), 1, {"node-2": 0.955, "node-3": 0.9}, fields=beside, change=evicted)


@scene("[V12] Two boxes differ by 25 % on their first night, without a known level")
def pair(fleet: Fleet) -> Nights:
    return after(fleet("a", "b"), 2, {"b": 0.75})


@scene("[V12] Two boxes differ by 25 % on their first night, and their level is known")
def pair_with_a_level(fleet: Fleet) -> Nights:
    return after(fleet("a", "b", levels=[h200()]), 1, {"b": 0.75})


@scene("[V12] Two boxes differ by 25 % after two nights alike")
def pair_with_a_past(fleet: Fleet) -> Nights:
    return after(after(fleet("a", "b"), 2), 1, {"b": 0.75})


@scene("[V12] Four of eight nodes are boards of another kind, at -10 %")
def four_and_four(fleet: Fleet) -> Nights:
    return after(fleet(*fleet_of(8)), 1, dict.fromkeys(fleet_of(4), 0.9))


@scene("[V12] All nodes are 12 degrees hotter, then all take 10 % more memory")
def hot_and_heavy(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 4)
    nights = after(nights, 1, fields={node: {"temperature_c": 72.0} for node in FOUR})
    return after(nights, 1, fields={node: {"memory_gb": 7.81} for node in FOUR})


@scene("[V12] One node has another driver, and all are well")
def mixed_drivers(fleet: Fleet) -> Nights:
    return after(fleet(*FOUR), 1, fields={**dict.fromkeys(FOUR[:3], OLD), "node-4": NEW})


def _of_gpus(slow: Sequence[int], node: str, run: RunResult) -> RunResult:
    """Eight GPUs that measure by themselves; the `slow` ones of that node are at -10 %."""
    name = run.spec.identity.node
    rates = [9.0 if name == node and gpu in slow else 10.0 for gpu in range(8)]
    kept = {"spec": run.spec, "started_at": run.started_at, "finished_at": run.finished_at}
    return make_independent(name, rates).model_copy(update=kept)


GPUS = {"strategies": ["independent"], "gpus_per_node": 8}
for slow in ([5], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 6, 7], list(range(8))):
    scene(f"[V7, V12] {len(slow)} of 8 GPUs of node-4 are at -10 %")(
        lambda fleet, slow=slow: after(fleet(*FOUR, **GPUS), 1, change=partial(_of_gpus, slow, "node-4"))  # type: ignore[misc]
    )


@scene("Seven of the eight GPUs of one box are at -10 %, and nothing else is known")
def one_good_gpu(fleet: Fleet) -> Nights:
    return after(fleet("box", **GPUS), 1, change=partial(_of_gpus, [0, 1, 2, 3, 4, 6, 7], "box"))


@scene("node-2 is at -2 % after ten nights")
def small_step(fleet: Fleet) -> Nights:
    return after(after(fleet(*FOUR), 10), 2, {"node-2": 0.98})


@scene("node-2 is at -8 % from the first night on; after four nights somebody accepts that")
def accepted(fleet: Fleet) -> Nights:
    nights = after(fleet(*FOUR), 4, {"node-2": 0.92})
    last = nights.played[-1].campaign
    nights.history.accept_baseline("node-2", "ada", "an older board", last.finished_at, last.started_at)
    return after(nights, 2, {"node-2": 0.92})


@scene("node-2 is slow in the planned round alone, and its GPU has a memory error in a re-run")
def memory_error(fleet: Fleet) -> Nights:
    def faulty(run: RunResult) -> RunResult:
        is_hit = (run.spec.identity.node, run.spec.identity.round) == ("node-2", 3)
        events = make_result("node-2", events={"ecc_uncorrected_in_run": 1}).telemetry
        return run.model_copy(update={"telemetry": events}) if is_hit else run

    return after(fleet(*FOUR), 1, partial(in_round, {("node-2", 1): 0.9}), change=faulty)


for number in (2, 3, 32):
    scene(f"{number} nodes are as always")(lambda fleet, number=number: after(fleet(*fleet_of(number)), 3))  # type: ignore[misc]


@scene("One of 64 nodes is at -8 %")
def one_of_many(fleet: Fleet) -> Nights:
    return after(fleet(*fleet_of(64)), 1, {"node-37": 0.92})


# --- as text ----------------------------------------------------------------------------------------------------------


def told_of(night: Night) -> list[str]:
    """The run's exit code and headline, who ran again, what else the report says, and each message."""
    campaign = night.campaign
    lines = [f"exit {exit_code(campaign)}: {verdict(campaign)}"]
    if night.reran:
        confirmed = [node.node for node in campaign.nodes if node.is_confirmed]
        lines.append(f"ran again: {listing(night.reran)}; confirmed: {listing(confirmed) or 'none'}")
    lines += [f"also: {finding.headline}" for finding in campaign.findings if finding.why is None]
    lines += [f"also: {node.node}: {remark}" for node in campaign.nodes for remark in node.remarks]
    for event, text in dict.fromkeys((told.event, told.text) for told in night.told):
        lines += [f"message ({event}):", *(f"    {line}" for line in text.splitlines() if line)]
    return lines


def diary(nights: Nights) -> Iterator[str]:
    """Each night; of several without a message that differ in figures alone the first."""

    def alike(numbered: tuple[int, Night]) -> object:
        number, night = numbered
        words = re.sub(r"[\d.]+|[−+]", "", verdict(night.campaign))
        return number if night.told else (words, night.reran, exit_code(night.campaign))

    for _, same in groupby(enumerate(nights.played, 1), key=alike):
        (first, night), *others = same
        lines = told_of(night)
        yield f"night {first}{f' to {others[-1][0]}' if others else ''}: {lines[0]}"
        yield from (f"    {line}" for line in lines[1:])
    states = [node for node in nights.fleet().values() if code(node) > 1]
    yield f"Fleet page: {'; '.join(f'{node.phrase} (gauge {code(node)})' for node in states) or 'all well'}"


def test_what_people_receive(tmp_path: Path, golden: Golden) -> None:
    texts = []
    for place, (title, played) in enumerate(SCENES.items()):
        folder = tmp_path / str(place)
        nights = played(partial(Nights, folder))
        texts.append("\n".join([title, "-" * len(title), *diary(nights)]))
        findings = [finding for night in nights.played for finding in night.campaign.findings]
        assert all(finding.measured and finding.expected and finding.resolution for finding in findings), title
    golden("diary.txt", "\n\n".join(texts) + "\n")


@pytest.mark.parametrize(
    ("names", "expected"), [(FOUR, "−7.0 % against its peers"), (FOUR[:2], "−8.8 % against its own past")]
)
def test_every_surface_shows_the_figure_that_decided(tmp_path: Path, names: Sequence[str], expected: str) -> None:
    """node-2 was at +2 %, and is at -7 %: among four the peers decide, beside one other node its past."""
    nights = after(Nights(tmp_path, *names, noise_pct=0.001), 4, {"node-2": 1.02})
    night = nights.night({"node-2": 0.93})
    (notice,), card = nights.history.open_notices(), nights.fleet()["node-2"]
    figure = expected.split(" against")[0]
    assert f"is slow: samples/s {expected}**," in banner(notice, "")
    assert f"node-2 is slow: samples/s {expected} (" in night.told[0].text.splitlines()[0]
    for said in (card.reason, verdict(night.campaign).split("(")[1], notice.finding.measured):
        assert said.startswith(f"samples/s {figure}")


def test_the_noise_between_runs_is_not_that_of_their_windows(tmp_path: Path) -> None:
    """[V12] The glossary called the larger of both what runs differ by. Runs of 0.1 %, windows of 1 %."""

    def wide(run: RunResult) -> RunResult:
        rate = run.performance.samples_per_second or 0.0
        windows = make_result(windows=[0.99 * rate, rate, 1.01 * rate]).performance.windows
        return run.model_copy(update={"performance": run.performance.model_copy(update={"windows": windows})})

    night = Nights(tmp_path, *FOUR, noise_floor=True).night(change=wide)
    (floor,) = floors(night.campaign.results)
    assert floor.between
    assert floor.within
    assert 0.05 < floor.between.sd_pct < 0.2
    assert floor.within.sd_pct == pytest.approx(1.0, rel=0.01)
    report = benchmark_report(night.campaign)
    assert "| between runs | Pooled standard deviation of the samples/s that one node shows from run to" in report
    assert "| noise | Standard deviation of one run: the larger of the deviations between runs and between" in report


ONE_IN_THREE = fleet_of(3)
NO_PAST = "samples/s −33.3 % against the median of 2 peers, one of which is as slow, limit 5 %"


def test_of_three_nodes_two_that_are_alike_are_not_red_because_the_third_is_twice_as_fast(tmp_path: Path) -> None:
    """10, 10 and 20 samples/s: the median of 10 and 20 is 15, and 10 is 33 % below it. Nothing tells which is right."""
    nights = Nights(tmp_path, *ONE_IN_THREE, noise_pct=0.001)
    night = nights.night({"node-3": 2.0})

    assert night.whys == {"node-1": Why.BEHIND, "node-2": Why.BEHIND}
    assert night.verdict("node-1").reason.startswith(NO_PAST)
    assert exit_code(night.campaign) == 0


@pytest.mark.parametrize("told_by", ["past", "level", "data sheet"])
def test_a_rate_that_is_known_to_be_impossible_is_no_peer(tmp_path: Path, told_by: str) -> None:
    """node-1 and node-2 are each other's only peer, and alike."""

    def beyond_the_sheet(run: RunResult) -> RunResult:
        is_it = told_by == "data sheet" and run.spec.identity.node == "node-3"
        mfu = {"mfu_pct": 101.0} if is_it else {}
        return run.model_copy(update={"performance": run.performance.model_copy(update=mfu)})

    levels = (h200(),) if told_by == "level" else ()
    nights = Nights(tmp_path, *ONE_IN_THREE, noise_pct=0.001, levels=levels)
    after(nights, 2 if told_by == "past" else 0)
    night = nights.night({"node-3": 2.0}, change=beyond_the_sheet)

    assert night.whys == {}
    peers = night.verdict("node-1").comparison(Metric.SAMPLES_PER_SECOND, Against.PEERS)
    assert peers is not None
    assert (peers.source, round(peers.deviation, 1)) == ("its only peer node-2", 0.0)
    remarks = night.verdict("node-3").remarks
    assert any("better than expected" in remark for remark in remarks)


def test_where_half_of_the_fleet_is_faster_than_its_past_it_is_still_an_example(tmp_path: Path) -> None:
    """Two of four are 10 % faster: beside 10, 11 and 11 the others are 9.1 % slower, as they always were."""
    nights = after(Nights(tmp_path, *FOUR, noise_pct=0.001), 3)
    night = nights.night({"node-3": 1.1, "node-4": 1.1})
    assert night.whys == {"node-1": Why.SLOW, "node-2": Why.SLOW}
    assert "as it always was" in night.verdict("node-1").reason


def test_a_night_on_a_shared_gpu_enters_no_past_though_its_level_is_accepted(tmp_path: Path) -> None:
    """Three nights at 10 samples/s, one at 9.55 beside another process (-4.5 %: at the limit it would lag behind), then
    somebody accepts: the past is of the next night on.
    """
    nights = after(Nights(tmp_path, *FOUR, noise_pct=0.001), 3)
    shared = nights.night({"node-2": 0.955}, fields={"node-2": {"num_other_processes": 1}})
    assert shared.whys == {"node-2": Why.SHARED}
    at = shared.campaign
    nights.history.accept_baseline("node-2", "ada", "an older board", at.finished_at, at.started_at)
    next_night = nights.night({"node-2": 0.97})
    assert next_night.verdict("node-2").comparison(Metric.SAMPLES_PER_SECOND, Against.PAST) is None
    after_that = nights.night({"node-2": 0.97})
    past = after_that.verdict("node-2").comparison(Metric.SAMPLES_PER_SECOND, Against.PAST)
    assert past is not None
    assert past.expected == pytest.approx(9.7, rel=1e-3)


@pytest.mark.parametrize("field", [{"temperature_c": 80.0}, {"memory_gb": 11.0}])
def test_a_night_that_is_hotter_or_takes_more_memory_than_its_past_enters_no_past(
    tmp_path: Path, field: Mapping[str, float]
) -> None:
    """Each night is off by the same past of three nights: were a hot night to count, the fourth would be as always."""
    nights = after(Nights(tmp_path, "node-1", noise_pct=0.001, levels=(h200(),)), 3)
    after(nights, 4, fields={"node-1": field})
    for night in nights.played[3:]:
        verdict = night.verdict("node-1")
        assert verdict.why in (Why.HOT, Why.HEAVY)
        assert "its own past of 3 nights" in verdict.reason


@pytest.mark.parametrize("gpu", ["NVIDIA H200", "NVIDIA X1"])
def test_of_one_node_the_terminal_gives_the_reason_once(tmp_path: Path, gpu: str) -> None:
    """Well by its level; of a GPU that nobody knows there is none, and nothing to compare with."""
    nights = Nights(tmp_path, "node-1", levels=(h200(),))
    night = nights.night(fields={"node-1": {"gpu_name": gpu}})
    console = Console(width=2000, record=True, file=io.StringIO())
    console.print(verdict_table(night.campaign))
    text = console.export_text()
    assert text.count(night.verdict("node-1").reason) == 1
    assert text.splitlines()[-1].startswith("node-1 is well: 10" if gpu == "NVIDIA H200" else "node-1 has nothing")
