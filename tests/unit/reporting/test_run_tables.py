"""Run tables: how the runs were set up, what was chosen, and what is left out when nobody measured it."""

from __future__ import annotations

from typing import Any

from bench_image.contract.result import Chosen
from tests.builders import campaigns, make_failed, make_result
from trainbench.core.tables import short_names
from trainbench.figure_catalogue.run_figures import PERFORMANCE
from trainbench.reporting import run_tables

AUTO: dict[str, Any] = {"micro_batch_size": "auto", "gradient_checkpointing": "auto"}


def chose(size: int, why: str = "the largest that fits") -> Chosen:
    return Chosen(micro_batch_size=size, gradient_checkpointing=False, why=why, execution={"loss": "fused"})


def test_what_was_chosen_stands_once_with_its_nodes_and_reason() -> None:
    runs = [make_result(f"node-{i}", chosen=chose(6 if i == 3 else 12), **AUTO) for i in (1, 2, 3)]
    rows = run_tables.chosen(campaigns.make_campaign([*runs, make_failed("node-4", **AUTO)])).rows

    assert [row.texts[1:] for row in rows] == [
        ("node-1 and node-2", "12", "off", "the largest that fits", "loss fused"),
        ("node-3", "6", "off", "the largest that fits", "loss fused"),
    ]


def test_a_setting_has_every_value_of_the_groups() -> None:
    runs = [make_result(), make_result(strategy="ddp", gpus_per_node=2), make_result(seq_length=1024)]
    table = run_tables.work(campaigns.make_campaign(runs))

    settings = {row.texts[0]: row.texts[1] for row in table.rows}
    assert (settings["micro_batch_size"], settings["model"]) == ("8", "mistral-7b")
    assert "dimensions" not in settings  # none were set
    assert (settings["seq_length"], settings["strategy"]) == ("512; 1024", "single; ddp")


def test_the_settings_of_one_work_can_be_pasted_into_a_script() -> None:
    runs = [make_result("node-1", **AUTO, chosen=chose(6), recipe="qlora"), make_result("node-2", recipe="qlora")]
    (config, lora, quantisation) = run_tables.in_your_script(runs[0])

    assert config == (
        "SFTConfig of your script",
        "per_device_train_batch_size=6, gradient_accumulation_steps=1, max_length=512, optim='paged_adamw_8bit', "
        "gradient_checkpointing=False, bf16=True",
    )
    assert lora[1] == ("r=16, lora_alpha=32, lora_dropout=0.0, target_modules=['k_proj', 'o_proj', 'q_proj', 'v_proj']")
    assert quantisation[1] == "load_in_4bit=True, bnb_4bit_quant_type='nf4', bnb_4bit_use_double_quant=True"
    assert config in [row.texts for row in run_tables.work(campaigns.make_campaign(runs[:1])).rows]
    assert not [row for row in run_tables.work(campaigns.make_campaign(runs)).rows if "script" in row.texts[0]]
    (sharded,) = run_tables.in_your_script(make_result(strategy="fsdp", gpus_per_node=2, recipe="full"))
    assert sharded[1].endswith("bf16=True, fsdp=True")


def test_communication_is_a_column_where_there_was_any() -> None:
    runs = make_result(), make_result(strategy="fsdp", gpus_per_node=2, exposed_communication_pct=4.0)
    single, gang = (run_tables.runs_table(campaigns.make_campaign([run]), PERFORMANCE) for run in runs)

    assert "exposed comm." not in single.names
    assert gang.rows[0].texts[gang.names.index("exposed comm.")] == "4.0 %"
    assert gang.rows[0].texts[gang.names.index("all comm.")] == "8.0 %"


def test_rows_are_named_without_the_fingerprint_where_that_suffices() -> None:
    """As the plan names groups: the fingerprint last."""
    runs = [make_result(), make_result(strategy="ddp", gpus_per_node=2)]
    twins = [make_result(), make_result(optimizer="adamw_torch")]

    assert list(short_names(runs).values()) == ["mistral-7b-qlora-single-node-1-r1", "mistral-7b-qlora-ddp-node-1-r1"]
    assert list(short_names(twins).values()) == [run.spec.identity.run_id for run in twins]
    assert list(short_names(runs[:1]).values()) == ["node-1-r1"]
