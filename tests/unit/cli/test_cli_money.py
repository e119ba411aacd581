"""`trainbench prices`, `prices import` and `estimate` as a script sees them: output, exit codes, what is written."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.builders import make_result
from tests.builders.commands import document as document_of
from tests.builders.commands import trainbench
from tests.conftest import Golden
from tests.unit.prices.test_price_import import SKYPILOT
from trainbench.cli import money
from trainbench.prices.price_tables import PRICES_FILE, USD_FIELDS, read_prices

A10 = "NVIDIA A10"


@pytest.fixture(autouse=True)
def home(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(money, "_today", lambda: date(2026, 11, 21))
    return own_folder


@pytest.fixture
def results(home: Path) -> Path:
    for node, rate in (("node-1", 1.44), ("node-2", 1.46), ("node-3", 1.47)):
        folder = home / "results" / node
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(make_result(node, samples_per_s=rate, gpu_name=A10).model_dump_json())
    return home / "results"


class TestPrices:
    def test_the_table_of_one_gpu(self) -> None:
        done = trainbench("prices", "--gpu", "A10")
        assert done.exit_code == 0
        assert "VM.GPU.A10.1" in done.stdout
        assert "2026-01-19" in done.stdout
        assert "STALE" in done.stdout
        assert "A10G" not in done.stdout
        assert "[1] Oracle's price list" in done.stdout

    def test_json_has_every_row(self) -> None:
        done = trainbench("prices", "--json")
        document = document_of(done)
        assert len(document["prices"]) == len(read_prices(PRICES_FILE))
        assert document["prices"][0] | {"source": ""} == {
            "provider": "OCI", "instance": "VM.GPU.A10.1", "gpu": "A10", "gpus_per_instance": 1,
            "region": "any listed", "on_demand_usd_per_hour": 2.0, "currency": "USD",
            **dict.fromkeys(USD_FIELDS[1:]),
            "as_of": "2026-01-19", "source": "", "own": False,
        }  # fmt: skip

    def test_own_tables_come_first_and_are_marked(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        catalogue = home / "vms.csv"
        catalogue.write_text(SKYPILOT)
        made = trainbench(
            "prices", "import", "vms.csv", "--provider", "P", "--as-of", "2026-11-20", "--source", "S", "-o", "own.toml"
        )
        assert made.exit_code == 0
        monkeypatch.setenv("TRAINBENCH_PRICES", str(home / "own.toml"))
        done = trainbench("prices", "--provider", "p", "--gpu", "A100 80GB", "--json")
        assert [row["own"] for row in document_of(done)["prices"]][:3] == [True, True, False]
        assert "yours" in trainbench("prices", "--gpu", "A100").stdout

    def test_no_price_and_a_broken_table(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        done = trainbench("prices", "--gpu", "T4")
        assert (done.exit_code, "no price fits" in done.stderr) == (2, True)
        monkeypatch.setenv("TRAINBENCH_PRICES", str(home / "nowhere.toml"))
        done = trainbench("prices")
        assert (done.exit_code, "nowhere.toml" in done.stderr) == (2, True)


class TestImport:
    def test_the_table_goes_to_standard_output_and_what_is_left_out_to_standard_error(self, home: Path) -> None:
        (home / "vms.csv").write_text(SKYPILOT)
        done = trainbench("prices", "import", "vms.csv", "--provider", "P", "--as-of", "2026-11-20", "--source", "S")
        assert done.exit_code == 0
        (home / "made.toml").write_text(done.stdout)
        assert len(read_prices(home / "made.toml")) == 3
        assert "3 prices of 2 GPUs from 18 rows; 13 left out." in done.stderr
        assert "Price: Input should be greater than 0" in done.stderr

    def test_a_table_that_is_there_is_not_replaced(self, home: Path) -> None:
        (home / "vms.csv").write_text(SKYPILOT)
        (home / "own.toml").write_text("# by hand")
        done = trainbench("prices", "import", "vms.csv", "--provider", "P", "--as-of", "2026-11-20", "-o", "own.toml",
                          "--source", "S")  # fmt: skip
        assert (done.exit_code, "own.toml exists already" in done.stderr) == (2, True)
        assert (home / "own.toml").read_text() == "# by hand"


class TestEstimate:
    def test_from_measured_results(self, results: Path) -> None:
        """The median of 1.44, 1.46 and 1.47 is 1.46: 10,000 / 1.46 = 6849 s = 1.9026 h; at $0.60: $1.1416."""
        done = trainbench("estimate", "results", "--samples", "10000", "--price", "0.60", "--json")
        assert done.exit_code == 0
        (document,) = document_of(done)["estimates"]
        assert document["hours"] == pytest.approx(1.9026, abs=1e-4)
        assert document["offers"][0]["usd"] == pytest.approx(1.1416, abs=1e-4)
        assert (document["gpu"], document["num_gpus"]) == (A10, 1)
        assert document["memory"]["sentence"].startswith("Memory: a peak of")

    def test_the_whole_text(self, results: Path, golden: Golden) -> None:
        done = trainbench("estimate", str(results), "--samples", "10000", "--epochs", "3")
        golden("estimate-a10.txt", done.stdout)

    def test_on_gpus_that_were_not_measured(self, results: Path) -> None:
        done = trainbench("estimate", "results", "--samples", "10000", "--gpus", "4", "--price", "0.60")
        assert (done.exit_code, "nothing was measured on 4 GPUs, only on 1" in done.stderr) == (2, True)

    def test_by_formula(self) -> None:
        done = trainbench(
            "estimate", "--samples", "1000", "--model", "tier-a", "--recipe", "full", "-s", "seq_length=2048",
            "-s", "optimizer=adamw_torch", "--gpus", "2", "--gpu", A10, "--mfu", "40", "--json",
        )  # fmt: skip
        assert done.exit_code == 0
        (document,) = document_of(done)["estimates"]
        assert document["samples_per_s"] == pytest.approx(26.647, abs=0.001)
        assert (document["memory"]["fits"], document["num_gpus"]) == (True, 2)

    def test_without_a_rate_it_says_what_is_missing_and_what_fits(self) -> None:
        done = trainbench("estimate", "--samples", "1000")
        assert done.exit_code == 2
        assert "No rate, so neither time nor cost" in done.stderr
        assert "Neither time nor cost is known." in done.stdout
        assert "By formula the job needs" in done.stdout

    def test_spot_and_owned(self) -> None:
        job = ("estimate", "--samples", "1000", "--gpu", A10, "--samples-per-s", "1.46", "--json")
        spot = trainbench(
            *job, "--price", "spot", "--with", "per_day=1", "--with", "checkpoint_every_minutes=30",
            "--with", "restart_minutes=6",
        )  # fmt: skip
        (document,) = document_of(spot)["estimates"]
        assert [offer["provider"] for offer in document["offers"]] == ["OCI (benchmarking guide)"]
        assert document["offers"][0]["usd_per_gpu_hour"] == pytest.approx(0.18 / (1 - 0.35 / 24))
        owned = trainbench(
            *job, "--price", "owned", "--with", "purchase_usd=8760", "--with", "life_years=1", "--with",
            "utilisation=0.5",
        )  # fmt: skip
        assert document_of(owned)["estimates"][0]["offers"][0]["usd_per_gpu_hour"] == 2.0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--price", "Spot", "--with", "per_day=2"], "price is 'Spot': choose one of all"),
            (["--price", "cheap"], "price is 'cheap': choose one of all, on-demand, spot, reserved, day"),
            (["--price", "0"], "price is 0 USD per GPU-hour"),
            (["--price", "owned"], "price owned is made of purchase_usd, life_years, utilisation"),
            (["--price", "owned", "--with", "purchase=1"], "life_years: Field required"),
            (
                ["--price", "1", "--with", "per_day=1"],
                "per_day with a price of 1: details belong to spot, owned and all",
            ),
            (["--samples-per-s", "1", "--mfu", "40"], "two rates: give one"),
            (["--gpus", "2", "--strategy", "single"], "the job is impossible"),
            (["nowhere"], "'nowhere' is neither a file"),
        ],
    )
    def test_impossible_work_is_reported(self, arguments: list[str], message: str) -> None:
        done = trainbench("estimate", "--samples", "1000", *arguments)
        assert done.exit_code == 2
        assert message in done.stderr

    def test_results_and_a_job_of_ones_own_do_not_go_together(self, results: Path) -> None:
        done = trainbench("estimate", "results", "--samples", "1000", "--model", "gpt2")
        assert (done.exit_code, "give them, or results, not both" in done.stderr) == (2, True)
        done = trainbench("estimate", "results", "--samples", "1000", "--gpu", "H100")
        assert (done.exit_code, "no result was measured on 'H100': there are NVIDIA A10" in done.stderr) == (2, True)
