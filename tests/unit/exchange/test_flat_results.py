"""The flat result.json of a published comparison of training strategies, beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_result
from tests.builders.commands import document, trainbench, write

# As published: 8,369 tokens/s of ddp on 2 GPUs.
PUBLISHED: dict[str, Any] = {
    "strategy": "ddp",
    "world_size": 2,
    "rank": 0,
    "seq_len": 2048,
    "tier": "A",
    "steps": 100,
    "per_device_batch": 1,
    "grad_accum": 4,
    "tokens_per_sec": 8369.455699192402,
    "mean_step_time_sec": 0.4893986117156026,
    "mean_loss": 6.133937082792583,
    "peak_vram_gb": 13.96808448,
    "h2d_gbps_per_gpu": 1.6738911398384803e-05,
}


pytestmark = pytest.mark.usefixtures("own_folder")


def publish(folder: Path, **changes: Any) -> None:
    fields = PUBLISHED | changes
    path = folder / f"bench-master-{fields['strategy']}-ws{fields['world_size']}-seq2048_results" / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields))


def test_each_run_is_a_row_named_by_its_folder(own_folder: Path) -> None:
    """8,369.4557 tokens/s of 2,048 tokens: 4.0866 samples/s. 12,220 on 4 GPUs: 1.46 times as fast. Batch 1 x 4 = 4 on
    each GPU, so both are ranked. At $2 per GPU-hour 2 GPUs cost $4 an hour: 4 / (4.0866 x 3600) x 1000 = $0.2719.
    """
    publish(own_folder / "results")
    publish(own_folder / "results", world_size=4, tokens_per_sec=12220.341463838564)
    done = trainbench("compare", "results", "--cost", "2", "2", "--json")
    two, four = document(done)["rows"]
    assert two["name"] == "bench-master-ddp-ws2-seq2048_results"
    assert (two["strategy"], two["num_gpus"], two["batch_per_rank"]) == ("ddp", 2, 4)
    assert two["samples_per_second"] == pytest.approx(4.0866, abs=1e-4)
    assert two["peak_memory_gb"] == 13.96808448
    assert two["usd_per_1000_samples"] == pytest.approx(0.2719, abs=1e-4)
    assert four["relative_rate"] == pytest.approx(1.46, abs=0.001)


def test_they_are_not_ranked_against_runs_of_ours(own_folder: Path) -> None:
    publish(own_folder / "theirs")
    write(own_folder / "ours", make_result(model="tier-a", recipe="full", optimizer="adamw_torch", seq_length=2048))
    text = " ".join(trainbench("compare", "theirs", "ours").stdout.split())
    assert "measured by a flat result.json vs trainbench" in text
    assert "2 different jobs" in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokens_per_sec": -1.0}, "tokens_per_sec"),
        ({"rank": 1}, "rank"),
        ({"seq_len": "2048"}, "seq_len"),
    ],
)
def test_a_wrong_field_is_named(own_folder: Path, changes: dict[str, Any], reason: str) -> None:
    publish(own_folder / "results", **changes)
    done = trainbench("compare", "results")
    assert done.exit_code == 1
    assert "is left out: no flat result of a strategy comparison: " in done.stderr
    assert reason in done.stderr.split("strategy comparison: ")[1]


def test_a_result_without_a_schema_is_still_ours_and_broken(own_folder: Path) -> None:
    (own_folder / "result.json").write_text('{"strategy": "ddp"}')
    assert "has no schema_version" in trainbench("compare", "result.json").stderr
