"""bench_*.json: our own format back and forth, the older program's, and files that are neither."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import parse_result
from bench_image.contract.seq2seq_file import bench_name
from tests.builders import make_failed, make_result
from tests.conftest import GOLDEN_DIR
from trainbench.exchange.export import ExportError, bench_file_content
from trainbench.exchange.result_files import BenchFile, Content, ForeignFileError, parse_file

OLD: dict[str, Any] = {
    "metadata": {
        "timestamp": "2026-01-05T10:00:00",
        "hostname": "gpu-7",
        "gpu_name": "NVIDIA H100 80GB HBM3",
        "gpu_count": 8,
        "versions": {"torch": "2.4.0"},
    },
    "config": {"d_model": 128, "nhead": 4, "batch_size": 128, "seq_len": 256, "amp": True},
    "summary": {
        "avg_wall_time_per_epoch_s": 30.0,
        "avg_throughput_samples_per_s": 125_000.0,
        "peak_gpu_memory_mb": 4_200.0,
        "avg_gpu_utilisation_pct": 91.5,
    },
    "epochs": [
        {"epoch": 1, "wall_time_s": 29.0, "throughput_samples_per_s": 129_000.0},
        {"epoch": 2, "wall_time_s": 31.0, "throughput_samples_per_s": 121_000.0},
    ],
}


def own() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GOLDEN_DIR / "bench-encoder-decoder.json").read_bytes())
    return document


def parse(document: object) -> Content:
    return parse_file(json.dumps(document).encode())


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *parents, name = path.split(".")
    copy = json.loads(json.dumps(document))
    place = copy
    for parent in parents:
        place = place[parent]
    place[name] = value
    return copy


def test_our_own_file_holds_a_whole_result_whose_windows_are_epochs() -> None:
    """Two epochs of 64 and 128 samples/s took 2 and 1 s: 1.5 s in the mean, and half of the range over the median is
    100 x 32 / 96 %.
    """
    file = parse(own())
    assert isinstance(file, BenchFile)
    row = file.row("bench", "bench.json")
    assert (row.num_ranks, row.epoch_s, row.apart_from) == (2, 1.5, "half of the range of 2 epochs")
    assert row.apart_pct == pytest.approx(100 / 3)


def test_a_result_becomes_the_file_that_its_own_program_wrote() -> None:
    """Every key of the program's file is there. What a result does not hold is null, and the file says why: each
    epoch's mean loss and loader wait. Epochs are the result's windows.
    """
    before = own()
    result = parse_result(json.dumps(before["result"]))
    after = json.loads(json.dumps(bench_file_content(result)))

    assert set(after) == {*before, "not_known"}
    for part in ("hardware", "software", "configuration", "summary"):
        assert set(after[part]) == set(before[part])
    assert after["hardware"] == before["hardware"]
    assert after["software"] == before["software"]
    assert set(after["epochs"][0]) == set(before["epochs"][0])
    assert after["summary"]["startup_s"] == before["summary"]["startup_s"] == 29.0
    assert (after["epochs"][0]["mean_loss"], after["not_known"]["epochs.mean_loss"]) == (
        None,
        "a result sums the losses and the loader's waits of all epochs up",
    )
    assert parse(after) == BenchFile(result)
    assert bench_name(result) == "bench_A100-SXM4-80GB_2gpu_20261121T020000Z"


def test_only_runs_of_the_encoder_decoder_that_ended_well_have_a_file() -> None:
    with pytest.raises(ExportError, match=r"is of mistral-7b: the bench_ format is the encoder-decoder's own"):
        bench_file_content(make_result())
    failed = make_failed(
        model="encoder-decoder",
        recipe="full",
        dimensions=own()["result"]["spec"]["work"]["dimensions"],
        precision="fp16",
        optimizer="adamw_torch",
    )
    with pytest.raises(ExportError, match="ended as oom"):
        bench_file_content(failed)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b'{"metadata": {"gpu', "no JSON"),
        (b"[" * 100_000, "too many values"),
        (b"[1, 2]", "not an object"),
        (b"{}", "no schema_version"),
        (b'{"metadata": {}}', "no file of benchmark.py: metadata.gpu_name: Field required"),
        (json.dumps(OLD).replace("125000.0", "NaN").encode(), "no JSON (truncated?): expected value"),
        (json.dumps(OLD).replace("125000.0", "1e999").encode(), "finite number"),
        (json.dumps(changed(OLD, "summary.avg_throughput_samples_per_s", -3)).encode(), "greater than 0"),
        (json.dumps(changed(OLD, "summary.avg_throughput_samples_per_s", 0)).encode(), "greater than 0"),
        (json.dumps(changed(OLD, "metadata.gpu_count", -1)).encode(), "gpu_count"),
        (json.dumps(changed(OLD, "epochs", [{"wall_time_s": 0}])).encode(), "greater than 0"),
        (json.dumps(changed(own(), "format", "other")).encode(), "no schema_version"),
        (json.dumps(changed(own(), "result.schema_version", 99)).encode(), "schema_version 99"),
        (
            json.dumps(changed(own(), "result.performance.samples_per_second", -1)).encode(),
            "samples_per_second: Input should be",
        ),
    ],
)
def test_what_is_no_benchmark_is_refused_in_a_sentence(content: bytes, message: str) -> None:
    with pytest.raises((ForeignFileError, ContractError)) as caught:
        parse_file(content)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000
