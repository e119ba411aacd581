"""Export and import: nothing of the owner's names goes out, nothing that is not a sound result comes in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Chosen, RunResult
from bench_image.contract.work import DiskData
from tests.builders import make_cpu_result, make_failed, make_result
from tests.builders.commands import document as document_of
from tests.builders.commands import trainbench
from tests.conftest import GOLDEN_DIR
from tests.unit.exchange.test_foreign_files import BENCH_FILE, OLD, changed
from trainbench.exchange.export import ExportError, anonymised, file_name, imported_result, published
from trainbench.exchange.result_files import ForeignFileError
from trainbench.results.artefacts import open_store

NODE = "gpu-secret-7.corp.example"


pytestmark = pytest.mark.usefixtures("own_folder")


def named() -> RunResult:
    """Names in every place in which a program may write one."""
    chosen = Chosen(
        micro_batch_size=8,
        gradient_checkpointing=True,
        why=f"trial on {NODE} at 10.1.2.3",
        execution={"data": "/mnt/corp/projects/data-7: page cache dropped"},
    )
    made = make_result(
        NODE,
        campaign_id="corp-night-1",
        chosen=chosen,
        weights="/mnt/corp/weights/mistral",
        data=DiskData(folder="/mnt/corp/projects/data-7", num_samples=1000),
    )
    return made.model_copy(update={"missing": made.missing | {"cost": f"asked by {NODE}, GPU-{NODE}-0"}})


def test_a_published_result_is_the_whole_result_without_names(own_folder: Path) -> None:
    (own_folder / "result.json").write_text(make_result().model_dump_json())
    done = trainbench("export", "result.json", "--output", "out", "--json")
    assert done.exit_code == 0, done.stderr
    file = Path(document_of(done)["file"])
    assert file.name == "nvidia-h200-x1-mistral-7b-qlora-8x512-2026-11-21.json"
    assert parse_result(file.read_bytes()) == anonymised(published(make_result()))


def test_no_name_goes_out(own_folder: Path) -> None:
    (own_folder / "result.json").write_text(named().model_dump_json())
    trainbench("export", "result.json", "--output", "out")
    (text,) = (path.read_text() for path in (own_folder / "out").iterdir())
    for secret in ("secret", "corp", "10.1.2.3", "trainbench-gpu", "GPU-", "registry.example"):
        assert secret not in text, secret


def test_names_stay_when_that_is_wanted(own_folder: Path) -> None:
    (own_folder / "result.json").write_text(named().model_dump_json())
    assert trainbench("export", "result.json", "--output", "out", "--with-names").exit_code == 0
    (text,) = (path.read_text() for path in (own_folder / "out").glob("*.json"))
    assert NODE in text


def test_what_was_measured_stays_as_it_is() -> None:
    before, after = named(), anonymised(named())
    assert after.performance == before.performance
    assert after.memory == before.memory
    assert [gpu.temperature_max_c for gpu in after.telemetry.gpus] == [63.0]
    assert (after.spec.identity.node, after.spec.identity.group_id) == ("node-1", before.spec.identity.group_id)
    assert after.spec.work.weights == "/left-out/mistral"
    RunResult.model_validate_json(after.model_dump_json())


def test_the_nodes_of_a_gang_are_numbered_by_rank() -> None:
    gang = make_result("b-host", strategy="ddp", nodes=3, peers=("a-host", "c-host"))
    after = anonymised(gang)
    assert (after.spec.identity.node, after.spec.identity.peers) == ("node-1", ("node-2", "node-3"))


def test_a_price_is_not_published() -> None:
    assert published(make_result()).cost.usd_per_gpu_hour is None


def test_a_cpu_run_is_named_as_one() -> None:
    assert file_name(make_cpu_result()).startswith("cpu-x0-")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (make_failed(), "ended as oom: there is nothing to publish"),
        (make_result(drill={"slowdown_pct": 20}), "is a drill"),
    ],
)
def test_a_failed_run_and_a_drill_are_not_published(result: RunResult, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        published(result)
    with pytest.raises(ExportError, match=message):
        imported_result(result.model_dump_json().encode())


def test_of_several_runs_one_must_be_chosen(own_folder: Path) -> None:
    for round_ in (1, 2):
        open_store().write_result(make_result(round=round_))
    done = trainbench("export", "campaign-1")
    assert done.exit_code == 2
    assert "'campaign-1' has 2 results: choose one by --run, of mistral-7b-qlora" in done.stderr
    run_id = make_result(round=2).spec.identity.run_id
    assert trainbench("export", "campaign-1", "--run", run_id, "--output", "out").exit_code == 0
    assert "has no run 'nine'" in trainbench("export", "campaign-1", "--run", "nine").stderr


def test_an_encoder_decoder_run_is_exported_as_its_bench_file(own_folder: Path) -> None:
    """Its windows stay epochs: 2 and 1 s, 1.5 s in the mean."""
    shutil.copy(BENCH_FILE, own_folder)
    done = trainbench("export", BENCH_FILE.name, "--output", "out")
    assert done.exit_code == 0, done.stderr
    (file,) = (own_folder / "out").iterdir()
    assert file.name == BENCH_FILE.name
    (row,) = document_of(trainbench("compare", str(file), "--json"))["rows"]
    assert (row["name"], row["epoch_s"]) == (BENCH_FILE.stem, 1.5)


# --- import -----------------------------------------------------------------------------------------------------------


def test_what_was_exported_can_be_imported_compared_and_reported(own_folder: Path) -> None:
    """Twice the same document is one campaign."""
    (own_folder / "a.json").write_text(named().model_dump_json())
    (own_folder / "b.json").write_text(named().model_dump_json())
    done = trainbench("import", "a.json", "b.json", "--json")
    assert done.exit_code == 0, done.stderr
    (campaign_id,) = set(document_of(done)["campaigns"].values())
    assert campaign_id.startswith("imported-nvidia-h200-mistral-7b-qlora-")
    assert open_store().campaign_ids() == (campaign_id,)
    assert trainbench("compare", campaign_id).exit_code == 0
    assert trainbench("report", campaign_id).exit_code == 0


def test_a_bad_file_is_reported_and_the_others_are_taken(own_folder: Path) -> None:
    (own_folder / "good.json").write_text(make_result().model_dump_json())
    (own_folder / "bad.json").write_text("{")
    done = trainbench("import", "bad.json", "good.json", "missing.json")
    assert done.exit_code == 1
    assert "bad.json is left out: no JSON" in done.stderr
    assert "missing.json is left out" in done.stderr
    assert len(open_store().campaign_ids()) == 1


def test_a_document_of_version_0_1_0_is_imported_too() -> None:
    """It holds the result beside a summary, which nothing reads."""
    result = published(make_result()).model_dump(mode="json")
    document = {"format": "trainbench-submission", "format_version": 1, "summary": {}, "result": result}
    assert imported_result(json.dumps(document).encode()) == imported_result(json.dumps(result).encode())


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec.identity.run_id", "../../../etc/passwd", "run_id"),
        ("spec.identity.campaign_id", "/absolute", "campaign_id"),
        ("spec.identity.node", "<script>", "node"),
    ],
)
def test_what_is_not_sound_is_refused_by_name(path: str, value: Any, message: str) -> None:
    with pytest.raises((ForeignFileError, ContractError)) as caught:
        imported_result(json.dumps(changed(make_result().model_dump(mode="json"), path, value)).encode())
    assert message in str(caught.value)


def test_a_result_of_another_program_is_not_imported() -> None:
    with pytest.raises(ForeignFileError, match=r"no result of trainbench; .* `compare` reads this file"):
        imported_result(json.dumps(OLD).encode())


def test_the_template_for_a_published_result_names_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has what the template promises and the hardware reference requires."""
    monkeypatch.chdir(tmp_path)
    template = (GOLDEN_DIR.parents[1] / ".github" / "ISSUE_TEMPLATE" / "benchmark-result.md").read_text()
    command = "trainbench export CAMPAIGN --run RUN_ID --output to-publish"
    assert f"\n    {command}\n" in template
    result = make_result()
    open_store(str(tmp_path / "store")).write_result(result)
    words = {"CAMPAIGN": result.spec.identity.campaign_id, "RUN_ID": result.spec.identity.run_id}
    done = trainbench(*(words.get(word, word) for word in command.split()[1:]), "--store", "store")

    assert done.exit_code == 0, done.stderr
    (file,) = Path("to-publish").iterdir()
    published = json.loads(file.read_text())
    gpu, work = published["context"]["gpus"][0], published["spec"]["work"]
    assert (gpu["name"], gpu["memory_total_bytes"], published["context"]["cuda"]) == ("NVIDIA H200", 150e9, "13.0")
    assert (work["model"], work["recipe"], work["micro_batch_size"], work["seq_length"]) == (
        "mistral-7b",
        "qlora",
        8,
        512,
    )
    assert (published["performance"]["tokens_per_second"], published["memory"]["peak_during_training"]) == (4864, 7.1)
    assert (published["parameters"]["total"], published["context"]["libraries"]["torch"]) == (7261655040, "2.13.0")
