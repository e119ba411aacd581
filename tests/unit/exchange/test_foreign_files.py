"""bench_*.json: our own, the older program's, and files that are neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.frozen import ContractError
from bench_image.contract.result import RunResult
from trainbench.exchange.result_files import Content, ForeignFileError, parse_file, row_of_runs

KEPT = Path(__file__).resolve().parents[2] / "kept" / "0.1.0" / "bench"
BENCH_FILE = KEPT / "bench_A100-SXM4-80GB_2gpu_20261121T020000Z.json"

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
    document: dict[str, Any] = json.loads(BENCH_FILE.read_bytes())
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


def test_a_bench_file_is_a_result_whose_windows_are_epochs() -> None:
    """Two epochs of 64 and 128 samples/s took 2 and 1 s: 1.5 s in the mean, and half of the range over the median is
    100 x 32 / 96 %. 0.1.0 wrote the result into a file of its own.
    """
    result = parse(own())
    assert isinstance(result, RunResult)
    assert parse_file(result.model_dump_json(indent=1).encode()) == result
    row = row_of_runs("bench", [("bench.json", result)])
    assert (row.num_ranks, row.epoch_s, row.apart_from) == (2, 1.5, "half of the range of 2 epochs")
    assert row.apart_pct == pytest.approx(100 / 3)


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
