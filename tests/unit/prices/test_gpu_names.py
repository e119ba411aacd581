from __future__ import annotations

import pytest

from trainbench.prices.price_import import GpuNameError, nvml_name


@pytest.mark.parametrize(
    ("name", "memories_gb", "words"),
    [
        # as skypilot-catalog names them
        ("A100", (), "A100 40GB"),
        ("A100", (40, 5), "A100 40GB"),
        ("A100-80GB", (80,), "A100 80GB"),
        ("A100-80GB-SXM", (), "A100 80GB"),
        ("A10G", (), "A10G"),
        ("H100", (80, 10), "H100"),
        ("H100", (94,), "H100 NVL"),
        ("H100-SXM", (), "H100"),
        ("H100-NVL", (), "H100 NVL"),
        ("H100-MEGA", (), "H100"),
        ("V100", (16, 2), "V100 16GB"),
        ("V100-32GB", (), "V100 32GB"),
        ("A6000", (), "RTX A6000"),
        ("RTXA6000", (), "RTX A6000"),
        ("RTX4090", (), "RTX 4090"),
        ("RTX3090-Ti", (), "RTX 3090 Ti"),
        ("RTX6000-Ada", (), "RTX 6000 Ada Generation"),
        # as gpuhunt names them
        ("A100", (80,), "A100 80GB"),
        ("RTX6000Ada", (48,), "RTX 6000 Ada Generation"),
        ("H100NVL", (94,), "H100 NVL"),
        ("L40S", (48,), "L40S"),
        ("A4500", (20,), "RTX A4500"),
        ("RTX2000Ada", (16,), "RTX 2000 Ada Generation"),
        ("RTX4070TiSUPER", (16,), "RTX 4070 Ti SUPER"),
        ("RTXPRO6000", (96,), "RTX PRO 6000"),
        # as NVML does
        ("NVIDIA A100-SXM4-80GB", (), "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", (), "A100 80GB PCIe"),
        ("NVIDIA GeForce RTX 3090", (), "RTX 3090"),
        ("NVIDIA RTX 6000 Ada Generation", (), "RTX 6000 Ada Generation"),
    ],
)
def test_names_of_catalogues(name: str, memories_gb: tuple[int, ...], words: str) -> None:
    assert nvml_name(name, memories_gb) == words


@pytest.mark.parametrize("name", ["tpu-v5p-8", "MI300X", "Trainium", "Inferentia2", "Gaudi HL-205"])
def test_other_accelerators_are_refused(name: str) -> None:
    with pytest.raises(GpuNameError, match="not an NVIDIA GPU"):
        nvml_name(name)


def test_two_gpus_with_80_gb_may_be_40_gb_each() -> None:
    with pytest.raises(GpuNameError, match="A100 with 40 or 80 GB: the file does not say which"):
        nvml_name("A100", (80, 40))
