"""Figures of the probes of an H200: what they reach and take, alone and beside a neighbour."""

from __future__ import annotations

from collections.abc import Iterator

from bench_image.contract.gpu_specs import data_sheet
from bench_image.contract.result_sections import share_field
from tests.unit.published.measured import document, row, run
from trainbench.judging.gpu_checks import BANDS, KINDS

PROBES = "probes-h200-2026-11-23"


def note() -> Iterator[str]:
    rounds = document(f"{PROBES}/probes.json")["rounds"]
    quiet, neighbour = run(f"{PROBES}/quiet"), run(f"{PROBES}/neighbour")
    for rate, kind in KINDS.items():
        if quiet.probes.peer_gb_per_s is None and rate == "peer_gb_per_s":
            continue
        values = [each["probes"][rate] for each in rounds]
        shares = [each["probes"][share_field(rate)] for each in rounds]
        yield row(
            f"{kind.label}, {kind.unit}",
            span(values, ",.0f" if max(values) > 100 else ".1f"),
            f"{span(shares, '.1f')} %",
            f"{getattr(quiet.probes, share_field(rate)):.1f} %",
            f"{getattr(neighbour.probes, share_field(rate)):.1f} %",
        )


def bands() -> Iterator[str]:
    """The table of docs/benchmarks.md; tests/unit/judging/test_gpu_checks.py holds the bands to the result files."""
    of_h200 = BANDS["NVIDIA H200"]
    assert of_h200["h2d_gb_per_s"] == of_h200["d2h_gb_per_s"]
    labels = {
        "h2d_gb_per_s": "host-to-device, device-to-host",
        **{rate: KINDS[rate].label for rate in BANDS["NVIDIA H200"] if rate not in ("h2d_gb_per_s", "d2h_gb_per_s")},
    }
    for rate, label in labels.items():
        band, promised = of_h200[rate], f"{data_sheet('NVIDIA H200')[rate]:,.0f} {KINDS[rate].unit}"
        yield row(label, f"{band.low_pct:g} to {band.high_pct:g} % of {promised}")


def span(values: list[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}"
