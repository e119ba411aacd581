"""The work that fits each GPU, against the memory formula, and docs/internals/gpus.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench_image.contract.gpu_specs import GPU_SPECS, PEAK_TFLOPS
from bench_image.contract.options import Recipe
from tests.conftest import Golden
from trainbench.cli.app import app
from trainbench.core.number_checks import QuantityError
from trainbench.cost.gpu_fit import document, facts_table, fits, known_gpu, meant_gpu, reading
from trainbench.cost.job_estimates import gpu_memory_bytes

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page(golden: Golden) -> None:
    golden("gpus.md", document(), folder=DOCS / "internals")


def test_what_fits_24_48_and_80_gb_by_hand() -> None:
    """Usable: 23.2, 46.4 and 77.3 GB. Weights of Mistral-7B in 16 bits are 14.5 GB; full training by 8-bit AdamW takes
    6 bytes for each of 7.24e9 parameters, 43.5 GB, and little more. 69e9 parameters are 35 GB in 4 bits.
    """
    assert [fits("A10", "mistral-7b", recipe) for recipe in (Recipe.QLORA, Recipe.LORA)] == [True, True]
    assert not fits("A10", "mistral-7b", Recipe.FULL)
    assert fits("L40S", "mistral-7b", Recipe.FULL)
    assert not fits("A100 40GB", "mistral-7b", Recipe.FULL)
    assert not fits("A10", "llama2-70b", Recipe.QLORA)
    assert fits("L40S", "llama2-70b", Recipe.QLORA)
    assert not fits("B200", "llama2-70b", Recipe.FULL)


@pytest.mark.parametrize("gpu", GPU_SPECS)
def test_each_gpu_has_all_facts(gpu: str) -> None:
    spec = GPU_SPECS[gpu]
    assert spec.peak_name in PEAK_TFLOPS
    assert gpu_memory_bytes(gpu) == spec.memory_gib * 2**30
    assert 50 <= spec.tdp_w <= 1200
    assert 200 <= spec.memory_gb_per_s <= 10_000
    assert spec.source


def test_the_reference_s_facts() -> None:
    """Memory, bandwidth and power as the hardware reference states them for its six GPUs, rounded as there."""
    stated = {
        "A100 80GB": (80, 2000, 400), "A100 40GB": (40, 1500, 400), "RTX 4090": (24, 1000, 450),
        "RTX 4080": (16, 716, 320), "RTX 3090": (24, 936, 350), "RTX A6000": (48, 768, 300),
    }  # fmt: skip
    for gpu, (memory, bandwidth, tdp) in stated.items():
        spec = GPU_SPECS[gpu]
        assert (spec.memory_gib, spec.tdp_w) == (memory, tdp)
        assert spec.memory_gb_per_s == pytest.approx(bandwidth, rel=0.04)


def test_a_short_name_means_the_one_gpu_that_has_it_and_else_the_sxm_module() -> None:
    names = {
        "h200": "h200",
        "H100 PCIe": "H100 PCIe",
        "4090": "RTX 4090",
        "H100": "H100 HBM3",
        "a100 40gb": "a100 40gb",
    }
    assert {name: meant_gpu(name) for name in names} == names
    assert (reading("H100", "H100 HBM3"), reading("h200", "H200")) == ("GPU 'H100' is read as H100 HBM3.", None)
    with pytest.raises(QuantityError, match="GPU 'A100' stands for several: choose A100 40GB and A100 80GB"):
        meant_gpu("A100")


def test_a_gpu_by_its_nvml_name() -> None:
    assert known_gpu("NVIDIA A100-SXM4-80GB") == "A100 80GB"
    assert known_gpu("NVIDIA H100 80GB HBM3") == "H100"
    with pytest.raises(QuantityError, match="GPU 'A11' is not known: choose one of RTX 4070 Ti, RTX 4080, A10, L4"):
        known_gpu("A11")


def test_the_command(golden: Golden) -> None:
    shown = CliRunner().invoke(app, ["gpus", "A10"])
    assert "What fits one A10, of whose 25.8 GB" in shown.stdout
    document = json.loads(CliRunner().invoke(app, ["gpus", "--json"]).stdout)["data"]
    assert [row["GPU"] for row in document["gpus"]] == list(GPU_SPECS)
    assert len(facts_table().rows) == len(GPU_SPECS)
    assert CliRunner().invoke(app, ["gpus", "A11"]).exit_code == 2
