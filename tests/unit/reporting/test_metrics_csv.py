from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.result import Chosen
from tests.builders import campaigns, make_cpu_result, make_failed, make_result
from trainbench.planning.plan import Skipped
from trainbench.reporting.data_files import metrics_csv
from trainbench.results.campaign import Campaign

GUIDE_COLUMNS = (
    "strategy,world_size,rank,seq_len,tier,steps,per_device_batch,grad_accum,tokens_per_sec,mean_step_time_sec,"
    "mean_loss,peak_vram_gb,h2d_gbps_per_gpu,scaling_efficiency_pct"
)


def written(campaign: Campaign) -> str:
    return metrics_csv(campaign)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_columns_that_existing_scripts_read_come_first_in_their_order() -> None:
    assert written(campaigns.healthy()).startswith(GUIDE_COLUMNS + ",")
    assert written(campaigns.make_campaign([])) == GUIDE_COLUMNS + "\n"


def test_one_row_for_each_run_with_full_precision() -> None:
    """10 samples/s of 512 tokens: 5,120 tokens/s and 0.8 s for a step of 8."""
    (row,) = rows(written(campaigns.make_campaign([make_result("node-1", 10.0, memory_gb=13.96808448)])))
    assert (row["strategy"], row["world_size"], row["rank"], row["steps"]) == ("single", "1", "0", "30")
    assert (row["tokens_per_sec"], row["mean_step_time_sec"], row["peak_vram_gb"]) == ("5120.0", "0.8", "13.96808448")
    assert row["tier"] == "mistral-7b"
    assert row["scaling_efficiency_pct"] == ""
    assert row["is_drill"] == "false"
    assert row["startup_s"] == "30.0"


@pytest.mark.parametrize(("model", "tier"), [("tier-a", "A"), ("tier-b", "B"), ("gpt2", "gpt2")])
def test_tier_models_fill_the_tier_and_others_name_themselves(model: str, tier: str) -> None:
    (row,) = rows(written(campaigns.make_campaign([make_result(model=model, recipe="full")])))
    assert row["tier"] == tier


def test_what_the_program_chose_is_what_the_row_says() -> None:
    chosen = Chosen(
        micro_batch_size=12, gradient_checkpointing=False, why="the largest that fits", execution={"loss": "fused"}
    )
    settings = {"micro_batch_size": "auto", "gradient_checkpointing": "auto"}
    (row,) = rows(written(campaigns.make_campaign([make_result(chosen=chosen, **settings)])))
    assert (row["per_device_batch"], row["micro_batch_size_asked"], row["micro_batch_size_chosen"]) == (
        "12",
        "auto",
        "12",
    )
    assert (row["gradient_checkpointing_asked"], row["gradient_checkpointing_chosen"]) == ("auto", "false")
    assert (row["chosen_why"], row["execution"]) == ("the largest that fits", "loss: fused")


def test_communication_data_and_energy_have_their_columns() -> None:
    """9.5 samples/s of 512 tokens of 8 bytes: 0.038912 MB/s."""
    run = make_result(samples_per_s=9.5, exposed_communication_pct=4.0, strategy="fsdp", gpus_per_node=2)
    (row,) = rows(written(campaigns.make_campaign([run])))
    assert (row["exposed_communication_pct"], row["communication_pct"]) == ("4.0", "8.0")
    assert (row["loader_wait_pct"], row["input_mb_per_s"], row["energy_per_token_j"]) == ("0.1", "0.038912", "0.13")
    assert (row["mfu_pct"], row["hfu_pct"], row["preset"]) == ("38.0", "57.0", "as_users_run")


def test_what_was_skipped_is_a_row_for_each_node_with_the_reason() -> None:
    skipped = Skipped(
        what="strategy zero3 on a and b",
        reason="needs 4 GPUs",
        strategy=Strategy.ZERO3,
        gpus_per_node=4,
        nodes=("a", "b"),
    )
    campaign = campaigns.make_campaign([make_result()], skipped=(skipped, Skipped(what="all", reason="why not")))
    _, first, second, whole = rows(written(campaign))
    assert [(r["node"], r["strategy"], r["status"], r["error"]) for r in (first, second)] == [
        ("a", "zero3", "skipped", "needs 4 GPUs"),
        ("b", "zero3", "skipped", "needs 4 GPUs"),
    ]
    assert (first["world_size"], first["tokens_per_sec"]) == ("4", "")
    assert (whole["strategy"], whole["status"], whole["node"]) == ("all", "skipped", "")


def test_the_memory_of_a_cpu_run_is_not_called_vram() -> None:
    (row,) = rows(written(campaigns.make_campaign([make_cpu_result(memory_gb=0.6)])))
    assert (row["peak_vram_gb"], row["peak_memory_gb"], row["memory_kind"]) == ("", "0.6", "process_rss")


def test_a_failed_run_is_a_row_with_empty_cells_and_no_batch_that_it_never_chose() -> None:
    (row,) = rows(written(campaigns.make_campaign([make_failed("node-1", micro_batch_size="auto")])))
    assert (row["status"], row["tokens_per_sec"], row["samples_per_second"]) == ("oom", "", "")
    assert (row["per_device_batch"], row["micro_batch_size_asked"], row["micro_batch_size_chosen"]) == ("", "auto", "")
    assert row["error"].startswith("OutOfMemoryError: CUDA out of memory")


def test_text_cannot_become_a_spreadsheet_formula_or_a_second_row() -> None:
    hostile = make_failed("node-1", kind='=cmd|"calc"', message="a\nb,c")
    (row,) = rows(written(campaigns.make_campaign([hostile])))
    assert row["error"] == '\'=cmd|"calc": a b,c'


def test_the_file(golden: Callable[[str, str], None]) -> None:
    golden("metrics-scaling.csv", text := written(campaigns.scaling()))
    single, two, four = rows(text)
    assert [r["scaling_efficiency_pct"] for r in (single, two, four)] == ["100.0", "90.0", "80.0"]
    assert [r["scaling_base_world_size"] for r in (single, two, four)] == ["1", "1", "1"]


def test_a_configuration_has_its_name_and_what_did_not_run_claims_no_settings() -> None:
    by_label = {row["label"]: row for row in rows(written(campaigns.configurations()))}

    assert by_label["seq 512"]["seq_len"] == "512"
    plain = by_label["QLoRA plain"]
    assert (plain["status"], plain["recipe"], plain["seq_len"]) == ("skipped", "", "")
    # in a survey it has its own
    (row,) = [row for row in rows(written(campaigns.survey())) if row["status"] == "skipped" and row["label"]]

    assert (row["model"], row["recipe"], row["node"]) == ("llama2-7b", "full", "small-1")
