from __future__ import annotations

import pytest

from bench_image.contract.memory_estimate import memory_need_bytes
from tests.builders import make_spec
from trainbench.cost import job_estimates
from trainbench.cost.job_estimates import gpu_memory_bytes, memory_fit


@pytest.mark.parametrize(
    ("gpu_name", "gib"),
    [
        ("NVIDIA A10", 24),
        ("NVIDIA A100-SXM4-80GB", 80),
        ("NVIDIA A100-PCIE-40GB", 40),
        ("NVIDIA H100 80GB HBM3", 80),
        ("NVIDIA GeForce RTX 4090", 24),
    ],
)
def test_the_memory_of_a_gpu_by_its_name(gpu_name: str, gib: int) -> None:
    assert gpu_memory_bytes(gpu_name) == gib * 2**30


@pytest.mark.parametrize("gpu_name", ["NVIDIA T4", "NVIDIA H100 NVL", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "", None])
def test_an_unknown_gpu_has_no_memory(gpu_name: str | None) -> None:
    assert gpu_memory_bytes(gpu_name) is None


def test_what_fits() -> None:
    """24 GiB = 25.77 GB, of which 90 % = 23.19 GB are usable."""
    fit = memory_fit(make_spec(), "NVIDIA A10")
    need_gb = memory_need_bytes(make_spec(), 24 * 2**30).with_paged / 1e9
    assert (fit.fits, fit.need_gb) == (True, pytest.approx(need_gb))
    needs = f"By formula the job needs {need_gb:.2f} GB on each GPU"
    assert fit.sentence == f"{needs}: it fits, 23.2 GB of the 25.8 GB of NVIDIA A10 are usable."


def test_what_does_not_fit_names_the_smallest_gpu_and_what_to_do() -> None:
    fit = memory_fit(make_spec(recipe="full", optimizer="adamw_torch"), "NVIDIA A10")
    assert (fit.fits, fit.smallest_gpu) == (False, "A100 80GB")
    assert "it does not fit" in fit.sentence
    assert "the smallest GPU of our list that holds it is the A100 80GB" in fit.sentence
    assert fit.sentence.endswith("a strategy that shards or a leaner recipe.")


def test_what_fits_nowhere_and_what_nobody_knows() -> None:
    huge = memory_fit(make_spec(model="llama2-70b", recipe="full", optimizer="adamw_torch"), None)
    assert (huge.fits, huge.smallest_gpu) == (None, None)
    assert huge.sentence.endswith("; no GPU of our list holds it.")
    assert "; the memory of NVIDIA T4 is not known; the smallest" in memory_fit(make_spec(), "NVIDIA T4").sentence


def test_the_memory_of_the_gpu_is_in_gb() -> None:
    """24 GiB are 25.77 GB of 1e9 bytes."""
    assert memory_fit(make_spec(), "NVIDIA A10").gpu_gb == pytest.approx(25.7698, abs=1e-4)


def test_the_node_s_own_word_on_its_memory_counts_also_for_a_gpu_that_nobody_knows() -> None:
    """20 GiB are 21.47 GB, of which 19.3 are usable; the A10's 25.8 GB by its name do not count beside them."""
    for name in ("Mystery 9000", "NVIDIA A10"):
        fit = memory_fit(make_spec(), name, 20 * 2**30)
        assert (fit.gpu_gb, fit.fits) == (pytest.approx(21.47, abs=0.01), fit.need_gb <= 19.33)
    assert memory_fit(make_spec(recipe="full", optimizer="adamw_torch"), "Mystery 9000", 20 * 2**30).fits is False


def test_of_two_names_that_fit_the_longer_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_estimates, "GPU_MEMORY_GIB", {"A100 80GB": 80, "A100": 40})
    assert gpu_memory_bytes("NVIDIA A100 80GB PCIe") == 80 * 2**30
    assert gpu_memory_bytes("NVIDIA A100 PCIe") == 40 * 2**30


def test_the_paged_optimizer_counts_with_what_the_one_of_8_bit_needs() -> None:
    """7,241,732,096 numbers x (2 + 2 x 4 / 256) bytes = 14.71 GB, beside 29.29 GB for the rest."""
    work = {"recipe": "full", "preset": "tuned", "micro_batch_size": 1, "seq_length": 2048}
    work |= {"gradient_checkpointing": True}
    paged = memory_fit(make_spec(**work, optimizer="paged_adamw_8bit"), "A100 40GB")
    resident = memory_fit(make_spec(**work, optimizer="adamw_8bit"), "A100 40GB")
    assert paged.paged_gb == pytest.approx(14.71, abs=0.01)
    assert (resident.paged_gb, resident.need_gb) == (0.0, paged.need_gb)
    assert (paged.fits, paged.smallest_gpu) == (False, "L40S")
    assert paged.sentence.startswith(
        "By formula the job needs 44.0 GB on each GPU, 14.7 GB of it for the paged optimizer: it does not fit"
    )
    assert "It runs only while the driver moves states of the optimizer to the host" in paged.sentence
    assert "It runs only" not in resident.sentence


def test_auto_counts_as_what_the_gpu_lets_the_run_take() -> None:
    """Nothing is checkpointed on an H200, some layers on an A10, of whose 25.8 GB 23.2 are usable."""
    work = {"preset": "tuned", "optimizer": "adamw_torch"}
    auto = make_spec(**work, gradient_checkpointing="auto")
    off, on = (make_spec(**work, gradient_checkpointing=each) for each in (False, True))
    memory = gpu_memory_bytes("H200")
    assert memory_fit(auto, "H200").need_gb == pytest.approx(memory_need_bytes(off, memory).total / 1e9)
    assert memory_need_bytes(on).total / 1e9 < memory_fit(auto, "A10").need_gb < 23.2
