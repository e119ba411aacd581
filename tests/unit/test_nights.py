"""What people receive, night after night: whole nights through the pipeline and a real SQLite history."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench_image.contract.result import Phase, RunError, RunResult, Status
from tests.builders import STARTED_AT, make_independent, make_result
from tests.builders.played_nights import Night, Nights
from trainbench.alerting.gauges import RED_FROM, code
from trainbench.alerting.notice_text import Event
from trainbench.cli.app import exit_code
from trainbench.comparison.noise_floor import floors
from trainbench.core.verdicts import Against, Confirmation, Metric, State, Why
from trainbench.judging.levels import KnownLevel, made_levels
from trainbench.reporting.report import benchmark_report

FOUR = ("node-1", "node-2", "node-3", "node-4")
OLD, NEW = {"driver": "575.1"}, {"driver": "580.2"}


def h200(samples_per_second: float = 10.0) -> KnownLevel:
    (level,) = made_levels(
        [make_result("elsewhere", samples_per_second, strategy="single")], "0.2.0", STARTED_AT.date()
    )
    return level


class TestARollout:
    def test_on_three_of_four_nodes_blames_the_rollout_and_not_the_fourth(self, tmp_path: Path) -> None:
        """[V1] Eight good nights, then nodes 1 to 3 get another driver and lose 8 %."""
        nights = Nights(tmp_path, *FOUR)
        for _ in range(8):
            nights.night(fields=dict.fromkeys(FOUR, OLD))
        slow = dict.fromkeys(FOUR[:3], 0.92)
        drivers = {node: NEW if node in slow else OLD for node in FOUR}
        night = nights.night(slow, fields=drivers)

        assert night.whys == dict.fromkeys(FOUR[:3], Why.CHANGED)
        (finding,) = [finding for finding in night.campaign.findings if finding.why is Why.CHANGED]
        assert "when the driver went from 575.1 to 580.2" in finding.summary
        assert "3 of 4 nodes" in finding.summary
        second = nights.night(slow, fields=drivers)
        assert {told.node for told in second.told} == set(FOUR[:3])
        assert len({told.text for told in second.told}) == 1
        assert nights.fleet()["node-4"].state is State.WELL

    def test_on_all_is_one_message_in_the_second_night_with_its_date(self, tmp_path: Path) -> None:
        nights = Nights(tmp_path, *FOUR)
        for _ in range(8):
            nights.night(fields=dict.fromkeys(FOUR, OLD))
        for _ in range(5):
            night = nights.night(dict.fromkeys(FOUR, 0.92), fields=dict.fromkeys(FOUR, NEW))

        assert night.whys == dict.fromkeys(FOUR, Why.CHANGED)
        assert {(day, event) for day, event, _ in nights.told} == {(10, Event.OPENED)}
        assert "since 29 Nov 2026, when the driver went from 575.1 to 580.2" in nights.played[9].told[0].text

    def test_an_open_notice_does_not_end_as_well_where_the_others_became_slow(self, tmp_path: Path) -> None:
        nights = Nights(tmp_path, *FOUR)
        for _ in range(6):
            nights.night()
        nights.night({"node-2": 0.9})
        for _ in range(3):
            nights.night(dict.fromkeys(FOUR, 0.9))
        assert [(event, node) for _, event, node in nights.told if node == "node-2"] == [(Event.OPENED, "node-2")]
        assert nights.fleet()["node-2"].state is State.RED


class TestReRuns:
    def test_a_chance_is_cleared_and_nobody_is_told(self, tmp_path: Path) -> None:
        """[V2] -15 % in the planned round, as always in the re-runs."""
        nights = Nights(tmp_path, *FOUR)
        for _ in range(4):
            nights.night()
        night = nights.night(lambda node, round_: 0.85 if node == "node-3" and round_ == 1 else 1.0)

        assert night.whys == {"node-3": Why.ONCE}
        assert night.verdict("node-3").confirmation is Confirmation.CLEARED
        nights.night()
        assert nights.told == []

    @pytest.mark.parametrize("later", [0.94, 1.06])
    def test_what_the_cluster_does_meanwhile_neither_confirms_nor_clears(self, tmp_path: Path, later: float) -> None:
        """[V5] All nodes are 6 % slower, or faster, in the re-runs: node-2 is cleared, node-3 is not."""
        nights = Nights(tmp_path, *(f"node-{i}" for i in range(1, 9)))

        def rate(node: str, round_: int) -> float:
            own = 0.92 if node == "node-3" or (node == "node-2" and round_ == 1) else 1.0
            return own * (later if round_ > 1 else 1.0)

        night = nights.night(rate)
        assert night.whys == {"node-2": Why.ONCE, "node-3": Why.SLOW}
        assert night.verdict("node-3").confirmation is Confirmation.CONFIRMED
        assert len(night.reran) == 2 + 3  # the suspects, and three well nodes beside them

    def test_one_disturbed_control_does_not_clear_a_slow_node(self, tmp_path: Path) -> None:
        nights = Nights(tmp_path, *FOUR)
        night = nights.night(
            lambda node, round_: 0.92 if node == "node-3" else 0.8 if node == "node-1" and round_ > 1 else 1.0
        )
        assert night.whys["node-3"] is Why.SLOW

    def test_a_fleet_that_changed_by_the_figure_of_one_disturbed_node_runs_again_as_a_whole(
        self, tmp_path: Path
    ) -> None:
        """Of two nodes both are slow against their past, one by far, and both as always in the re-runs: the one that
        its peer did not show slow is not blamed by its one round. Of four, node-1 stays slow, and it ran again too.
        """
        two = Nights(tmp_path / "two", "a", "b")
        four = Nights(tmp_path, *FOUR)
        for _ in range(4):
            two.night()
            four.night()
        night = two.night(lambda node, round_: 1.0 if round_ > 1 else 0.9 if node == "a" else 0.96)
        assert set(night.reran) == {"a", "b"}
        assert night.whys == {"a": Why.ONCE, "b": Why.ONCE}

        night = four.night(
            lambda node, round_: 0.97 if node == "node-1" else 0.91 if (node, round_) == ("node-2", 1) else 1.0
        )
        assert {"node-1", "node-2"} < set(night.reran)
        assert night.whys == {"node-1": Why.BEHIND, "node-2": Why.ONCE}
        assert night.verdict("node-1").confirmation is Confirmation.CONFIRMED

    def test_where_half_of_the_fleet_changed_whatever_one_node_does_the_others_do_not_run_again(
        self, tmp_path: Path
    ) -> None:
        """Three of six at -3 % and node-1 at -10 %, in the planned round alone. A control's re-runs say what the
        cluster did, and nothing of the control.
        """
        names = [f"node-{i}" for i in range(1, 7)]
        nights = Nights(tmp_path, *names)
        for _ in range(4):
            nights.night()

        def rate(node: str, round_: int) -> float:
            planned = {"node-1": 0.9, "node-2": 0.97, "node-3": 0.97, "node-4": 0.97}
            return planned.get(node, 1.0) if round_ == 1 else 1.0

        night = nights.night(rate)
        assert night.whys == {"node-1": Why.ONCE} | dict.fromkeys(("node-2", "node-3", "node-4"), Why.CHANGED)

    def test_nodes_on_a_shared_gpu_are_no_part_of_a_fleet_that_changed(self, tmp_path: Path) -> None:
        """Three of four share their GPUs and lose 17 %: node-4, once at -4 %, runs again by itself. Then they lose
        nothing, and both that do not share lose 3 %: all that count.
        """
        names = (*FOUR, "node-5")
        nights = Nights(tmp_path, *FOUR)
        five = Nights(tmp_path / "five", *names)
        for _ in range(4):
            nights.night()
            five.night()
        shared = {node: {"num_other_processes": 1} for node in FOUR[:3]}
        night = nights.night(
            lambda node, round_: 0.83 if node in shared else 0.96 if round_ == 1 else 1.0, fields=shared
        )
        assert night.whys == dict.fromkeys(shared, Why.SHARED) | {"node-4": Why.ONCE}

        assert five.night({"node-4": 0.97, "node-5": 0.97}, fields=shared).whys == {
            "node-4": Why.CHANGED,
            "node-5": Why.CHANGED,
        }

    def test_a_shared_node_near_the_limit_and_a_well_one_whose_re_run_fails_wait_for_none(self, tmp_path: Path) -> None:
        """node-2 is a suspect that does not run again, because it shares its GPU; node-1 is a control of node-3."""
        nights = Nights(tmp_path, *FOUR, "node-5")

        def evicted(run: RunResult) -> RunResult:
            is_hit = run.spec.identity.node == "node-1" and run.spec.identity.round > 1
            error = RunError(kind="evicted", message="the node was full", phase=Phase.MEASURE)
            return run.model_copy(update={"status": Status.ERROR, "error": error}) if is_hit else run

        shared = {"node-2": {"num_other_processes": 1}}
        night = nights.night({"node-2": 0.955, "node-3": 0.9}, fields=shared, change=evicted)
        assert set(night.reran) == {"node-1", "node-3", "node-4", "node-5"}
        assert night.whys == {"node-2": Why.BEHIND, "node-3": Why.SLOW}
        for node, confirmation in {"node-1": "not_needed", "node-2": "not_needed", "node-3": "confirmed"}.items():
            assert night.verdict(node).confirmation == confirmation, node

    def test_two_good_rounds_after_two_bad_ones(self, tmp_path: Path) -> None:
        """[V6] 7, 7 and 10 of 10, and 10 in the re-runs: the median of the rounds is slow, and nothing confirms it."""
        nights = Nights(tmp_path, *FOUR, rounds=3)
        night = nights.night(lambda node, round_: 0.7 if node == "node-1" and round_ < 3 else 1.0)
        assert night.verdict("node-1").state is State.LOOK


class TestConstantAndSlow:
    def test_a_node_that_is_always_a_little_slow_is_told_of_once(self, tmp_path: Path) -> None:
        """[V3] -2.6 % for 12 nights."""
        nights = Nights(tmp_path, *FOUR, noise_pct=0.3)
        for _ in range(12):
            nights.night({"node-2": 0.974})
        assert [event for _, event, _ in nights.told] in ([], [Event.OPENED])

    def test_a_drift_is_told_of_once_and_never_as_well(self, tmp_path: Path) -> None:
        """-0.5 % a night: against its own first nights, then against its peers."""
        nights = Nights(tmp_path, *FOUR)
        for night in range(16):
            nights.night({"node-2": 1 - 0.005 * night})
        assert {event for _, event, _ in nights.told} <= {Event.OPENED, Event.WORSENED}
        assert len(nights.told) == 2  # a look, then red
        assert nights.fleet()["node-2"].why is Why.SLOW

    def test_a_flapping_node_keeps_its_one_notice(self, tmp_path: Path) -> None:
        nights = Nights(tmp_path, *FOUR)
        for night in range(8):
            nights.night({"node-2": 0.9 if night % 2 else 1.0})
        assert [event for _, event, _ in nights.told] == [Event.OPENED]

    def test_red_stays_red_until_two_good_nights(self, tmp_path: Path) -> None:
        """[V9] -10, -10 and -4 %: the Fleet page says red, with the words of the notice. -4 % is less than half."""
        nights = Nights(tmp_path, *FOUR)
        for share in (1.0, 1.0, 0.9, 0.9, 0.94, 0.96):
            nights.night({"node-2": share})
        assert nights.fleet()["node-2"].state is State.RED
        nights.night()
        assert nights.fleet()["node-2"].state is State.WELL
        assert [(day, event) for day, event, _ in nights.told] == [(3, Event.OPENED), (7, Event.CLOSED)]

    def test_a_step_below_the_limit_is_marked_at_once_and_sent_in_the_second_night(self, tmp_path: Path) -> None:
        nights = Nights(tmp_path, *FOUR)
        for _ in range(10):
            nights.night()
        first = nights.night({"node-2": 0.98})
        assert first.whys == {"node-2": Why.BEHIND}
        assert not first.told
        (told,) = nights.night({"node-2": 0.98}).told
        assert "since 1 Dec 2026" in told.text

    def test_slow_as_it_always_was_offers_its_level(self, tmp_path: Path) -> None:
        nights = Nights(tmp_path, *FOUR)
        for _ in range(4):
            night = nights.night({"node-2": 0.92})
        assert "as it always was" in night.verdict("node-2").reason
        assert [event for _, event, _ in nights.told] == [Event.OPENED]
        at = night.campaign.finished_at
        nights.history.accept_baseline("node-2", "ada", "an older board", at, night.campaign.started_at)
        assert nights.night({"node-2": 0.92}).whys == {}


class TestMachines:
    def test_swapped_names_carry_their_pasts_along(self, tmp_path: Path) -> None:
        """[V4] node-1 makes 10, node-2 10.3 samples/s; their names are swapped."""
        nights = Nights(tmp_path, *FOUR)
        for _ in range(8):
            nights.night({"node-2": 1.03})
        swapped = {"node-1": "node-2", "node-2": "node-1"}
        for _ in range(3):
            night = nights.night({"node-1": 1.03}, machines=swapped)
            assert night.whys == {}
        assert nights.told == []

    def test_a_replaced_gpu_has_no_past(self, tmp_path: Path) -> None:
        nights = Nights(tmp_path, *FOUR)
        for _ in range(8):
            nights.night({"node-2": 1.03})
        for _ in range(3):
            night = nights.night(machines={"node-2": "new-board"})
        assert night.whys == {}
        assert nights.told == []


class TestFleets:
    @pytest.mark.parametrize("num", [2, 3, 8])
    def test_a_healthy_fleet_is_well_from_the_first_night_on(self, tmp_path: Path, num: int) -> None:
        nights = Nights(tmp_path, *(f"node-{i}" for i in range(num)))
        for _ in range(3):
            night = nights.night()
            assert (night.whys, exit_code(night.campaign)) == ({}, 0)
        assert nights.told == []

    def test_a_fleet_of_256(self, tmp_path: Path) -> None:
        nights = Nights(tmp_path, *(f"node-{i}" for i in range(256)))
        night = nights.night({"node-77": 0.92})
        assert night.whys == {"node-77": Why.SLOW}

    def test_one_box_without_a_level_is_judged_by_its_past_from_the_second_night_on(self, tmp_path: Path) -> None:
        """[V11] The first night has nothing to compare with, and says from when on it has."""
        nights = Nights(tmp_path, "box")
        first = nights.night()
        assert (first.whys, exit_code(first.campaign)) == ({"box": Why.NOTHING_TO_COMPARE}, 3)
        assert "from the next" in first.verdict("box").reason
        assert nights.night().whys == {}
        assert nights.night({"box": 0.7}).whys == {"box": Why.SLOW}

    def test_one_box_with_a_level_is_judged_from_the_first_night_on(self, tmp_path: Path) -> None:
        night = Nights(tmp_path, "box", levels=[h200(10.03)], noise_pct=0.001).night()
        assert (night.whys, exit_code(night.campaign)) == ({}, 0)
        assert "99.7 % of" in night.verdict("box").reason
        assert "band 96 to 104 %" in night.verdict("box").reason

    def test_a_past_of_one_noisy_night_leaves_the_decision_to_the_level(self, tmp_path: Path) -> None:
        """Noise of 2 %: what nights differ by is not known yet, and three rounds show the level within 5 %."""
        nights = Nights(tmp_path, "box", levels=[h200()], noise_pct=2, rounds=3)
        for _ in range(2):
            night = nights.night()
            assert night.whys == {}
        past = night.verdict("box").comparison(Metric.SAMPLES_PER_SECOND, Against.PAST)
        assert past
        assert past.chance
        assert past.chance > 10
        assert nights.night({"box": 0.85}).whys == {"box": Why.SLOW}

    def test_one_box_below_its_level_is_red(self, tmp_path: Path) -> None:
        night = Nights(tmp_path, "box", levels=[h200(11.0)]).night()
        assert night.whys == {"box": Why.SLOW}
        assert night.verdict("box").confirmation is Confirmation.CONFIRMED

    def test_two_boxes_that_differ(self, tmp_path: Path) -> None:
        """[V12] Neither is green on its first night; a level says which one is slow, and so does a past."""
        assert Nights(tmp_path / "a", "a", "b").night({"b": 0.75}).whys == {"a": Why.PAIR, "b": Why.PAIR}
        assert Nights(tmp_path / "b", "a", "b", levels=[h200()]).night({"b": 0.75}).whys == {"b": Why.SLOW}
        nights = Nights(tmp_path, "a", "b")
        nights.night()
        nights.night()
        assert nights.night({"b": 0.75}).whys == {"b": Why.SLOW}

    def test_a_majority_that_is_slow_blames_no_good_node(self, tmp_path: Path) -> None:
        """[V7] Two of three at -10 %, and five of eight, without a past."""
        three = Nights(tmp_path / "a", "node-1", "node-2", "node-3").night({"node-2": 0.9, "node-3": 0.9})
        assert "node-1" not in three.whys
        eight = Nights(tmp_path, *(f"node-{i}" for i in range(8))).night({f"node-{i}": 0.9 for i in range(5)})
        assert not {"node-5", "node-6", "node-7"} & set(eight.whys)

    def test_four_and_four_is_no_eight_breaches(self, tmp_path: Path) -> None:
        """[V12] Two kinds of boards: the four slower ones are named, the others are well."""
        slower = {f"node-{i}": 0.9 for i in range(4)}
        night = Nights(tmp_path, *(f"node-{i}" for i in range(8))).night(slower)
        assert night.whys == dict.fromkeys(slower, Why.SLOW)


class TestGpus:
    """Nodes of eight GPUs that measure by themselves."""

    @staticmethod
    def play(folder: Path, slow: Sequence[int], *nodes: str) -> Night:
        """The `slow` GPUs of the last node are at -10 %."""

        def of_gpus(run: RunResult) -> RunResult:
            node = run.spec.identity.node
            rates = [9.0 if node == nodes[-1] and gpu in slow else 10.0 for gpu in range(8)]
            kept = {"spec": run.spec, "started_at": run.started_at, "finished_at": run.finished_at}
            return make_independent(node, rates).model_copy(update=kept)

        return Nights(folder, *nodes, strategies=["independent"], gpus_per_node=8).night(change=of_gpus)

    @pytest.mark.parametrize(
        ("slow", "named"),
        [
            ([5], "GPU 5 (GPU-node-4-5): "),
            (
                range(4),
                "GPU 0 (GPU-node-4-0), GPU 1 (GPU-node-4-1), GPU 2 (GPU-node-4-2) and GPU 3 (GPU-node-4-3): ",
            ),
            (range(6), "6 of 8 GPUs, all but GPU 6 (GPU-node-4-6) and GPU 7 (GPU-node-4-7): "),
            ([0, 1, 2, 3, 4, 6, 7], "7 of 8 GPUs, all but GPU 5 (GPU-node-4-5): "),
            (range(8), "all 8 GPUs: "),
        ],
    )  # fmt: skip
    def test_the_message_says_how_many_are_slow_and_which(
        self, tmp_path: Path, slow: Sequence[int], named: str
    ) -> None:
        """[V12] Seven of eight were GPU 5 alone. [V7] Of most the good ones were blamed."""
        night = self.play(tmp_path, slow, *FOUR)
        assert night.whys == {"node-4": Why.SLOW}
        assert [gpu.index for gpu in night.verdict("node-4").gpus if gpu.why is Why.SLOW] == list(slow)
        (told,) = night.told
        assert f"\n{named}samples/s −10.0 %" in told.text

    def test_one_box_alone_says_that_one_gpu_is_better_than_the_others(self, tmp_path: Path) -> None:
        """Seven of eight are slow, and no peer, past or level knows: +11.1 %."""
        night = self.play(tmp_path, [0, 1, 2, 3, 4, 6, 7], "box")
        assert night.whys == {}
        (remark,) = night.verdict("box").remarks
        assert remark.startswith("GPU 5 (GPU-box-5): samples/s +11.1 % against the median of 7 other GPUs")
        assert remark.endswith("better than expected, or the others are worse")


class TestWords:
    def test_other_versions_are_told_before_any_node_is_slow(self, tmp_path: Path) -> None:
        """[V12] Mixed drivers were not mentioned until a node was red. Nobody gets a message."""
        nights = Nights(tmp_path, *FOUR)
        night = nights.night(fields={**dict.fromkeys(FOUR[:3], OLD), "node-4": NEW})
        (finding,) = night.campaign.findings
        assert (finding.level, finding.nodes, finding.measured) == (
            "info", ("node-4",), "driver 580.2",
        )  # fmt: skip
        assert "driver 575.1, as on most of its peers" in benchmark_report(night.campaign)
        assert (night.whys, nights.told) == ({}, [])

    def test_a_confirmed_node_says_what_each_round_made(self, tmp_path: Path) -> None:
        """[V12] It was "confirmed by a re-run with 0.0 %"."""
        (told,) = Nights(tmp_path, *FOUR).night({"node-2": 0.9}).told
        assert re.search(
            r"limit 5 %; −(9.9|10.[012]) % first, then −(9.9|10.[012]) % and −(9.9|10.[012]) %\.", told.text
        )
        assert "0.0 %" not in told.text.replace("10.0 %", "")

    def test_the_noise_between_runs_is_not_that_of_their_windows(self, tmp_path: Path) -> None:
        """[V12] The glossary called the larger of both what runs differ by. Runs of 0.1 %, windows of 1 %."""

        def wide(run: RunResult) -> RunResult:
            rate = run.performance.samples_per_second or 0.0
            windows = make_result(windows=[0.99 * rate, rate, 1.01 * rate]).performance.windows
            return run.model_copy(update={"performance": run.performance.model_copy(update={"windows": windows})})

        night = Nights(tmp_path, *FOUR, noise_floor=True).night(change=wide)
        (floor,) = floors(night.campaign.results)
        assert floor.between
        assert floor.within
        assert (0.05 < floor.between.sd_pct < 0.2, floor.within.sd_pct) == (True, pytest.approx(1.0, rel=0.01))
        report = benchmark_report(night.campaign)
        assert (
            "- **between runs**: Pooled standard deviation of the samples/s that one node shows from run to" in report
        )
        assert (
            "- **noise**: Standard deviation of one run: the larger of the deviations between runs and between"
            in report
        )


class TestFigures:
    def test_a_sensor_at_zero_or_unreadable_blames_nobody(self, tmp_path: Path) -> None:
        """[V10]"""
        nights = Nights(tmp_path, *FOUR)
        zero = nights.night(fields={"node-1": {"temperature_c": 0.0}})
        assert zero.whys == {}
        assert zero.verdict("node-1").remarks == ("no temperature was measured",)
        assert nights.night(fields={node: {"temperature_c": None} for node in FOUR}).whys == {}

    def test_a_whole_fleet_that_became_hot_or_heavy_asks_for_a_look(self, tmp_path: Path) -> None:
        """[V12] +12 degrees, then +10 % memory, on all nodes."""
        nights = Nights(tmp_path, *FOUR)
        for _ in range(4):
            nights.night()
        assert nights.night(fields={node: {"temperature_c": 72.0} for node in FOUR}).whys == dict.fromkeys(
            FOUR, Why.HOT
        )
        assert nights.night(fields={node: {"memory_gb": 7.81} for node in FOUR}).whys == dict.fromkeys(FOUR, Why.HEAVY)

    @pytest.mark.parametrize("wrong_loss", [{"mean_loss": 99.0}, {"mean_loss": 0.0}, {"first_loss": 10.45}])
    def test_wrong_losses_are_red(self, tmp_path: Path, wrong_loss: dict[str, float]) -> None:
        """[V8] A mean loss of 99 or 0, or a first loss that differs by 0.5 %, beside those of its peers."""

        def wrong(run: RunResult) -> RunResult:
            if run.spec.identity.node != "node-3":
                return run
            return run.model_copy(update={"performance": run.performance.model_copy(update=wrong_loss)})

        night = Nights(tmp_path, *FOUR).night(change=wrong)
        assert night.whys == {"node-3": Why.OTHER_NUMBERS}
        assert night.verdict("node-3").state is State.RED

    def test_an_uncorrected_memory_error_is_red_at_once_also_in_a_re_run(self, tmp_path: Path) -> None:
        """node-2 runs again because it was slow once, and is not; its memory has an error meanwhile."""

        def faulty(run: RunResult) -> RunResult:
            if (run.spec.identity.node, run.spec.identity.round) != ("node-2", 3):
                return run
            events = make_result("node-2", events={"ecc_uncorrected_in_run": 1}).telemetry
            return run.model_copy(update={"telemetry": events})

        nights = Nights(tmp_path, *FOUR)
        night = nights.night(lambda node, round_: 0.9 if (node, round_) == ("node-2", 1) else 1.0, change=faulty)
        assert night.whys == {"node-2": Why.BROKEN_GPU}
        (told,) = night.told
        assert "1 uncorrected memory error (ECC)" in told.text
        assert "Next: drain the node and reset the GPU" in told.text
        assert code(nights.fleet()["node-2"]) >= RED_FROM

    def test_a_shared_gpu_is_told_and_enters_no_past(self, tmp_path: Path) -> None:
        """[V11] Another process takes 17 % of the rate; the night after, the past is what it was."""
        nights = Nights(tmp_path, *FOUR)
        for _ in range(3):
            nights.night()
        shared = nights.night({"node-2": 0.83}, fields={"node-2": {"num_other_processes": 1}})
        assert shared.whys == {"node-2": Why.SHARED}
        assert "1 other process" in shared.verdict("node-2").reason
        unhurt = nights.night(fields={"node-2": {"num_other_processes": 1}})
        assert unhurt.whys == {}
        assert any("1 other process" in remark for remark in unhurt.verdict("node-2").remarks)
        assert nights.night().whys == {}
        assert nights.told == []
