"""Figures of docs/internals/performance.md on settings beside each other: two diagnoses of configurations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from upath import UPath

from tests.unit.published.measured import RESULTS, row
from trainbench.comparison.configurations import ConfigurationStep, SpeedUp, Standing, compare_by_gpu_kind
from trainbench.figure_catalogue.run_figures import GPU_UTILISATION_MEAN_PCT, PEAK_MEMORY_GB, TOKENS_PER_SECOND
from trainbench.results.artefacts import read_campaign

SIX, SETTINGS = "config_diagnosis-20261123-151609-392", "config_diagnosis-20261123-151844-953"


@cache
def standings(campaign: str) -> dict[str, Standing]:
    (kind,) = compare_by_gpu_kind(read_campaign(UPath(RESULTS / "campaigns" / campaign / "summary/verdict.json")))
    return {one.name: one for one in kind.standings}


def step(campaign: str) -> ConfigurationStep:
    (kind,) = compare_by_gpu_kind(read_campaign(UPath(RESULTS / "campaigns" / campaign / "summary/verdict.json")))
    (only,) = kind.steps
    return only


def gb(one: Standing) -> float:
    return one.figure(PEAK_MEMORY_GB) or 0.0


def busy_pct(one: Standing) -> float:
    return one.figure(GPU_UTILISATION_MEAN_PCT) or 0.0


def tokens(one: Standing) -> SpeedUp:
    assert one.per_token is not None
    return one.per_token


def page() -> Iterator[str]:
    for campaign in (SIX, SETTINGS):
        for name, one in standings(campaign).items():
            yield row(
                f"`{name}`",
                f"{one.figure(TOKENS_PER_SECOND) or 0.0:,.0f}",
                tokens(one).text(),
                one.verdict.value,
                f"{gb(one):.2f}",
                f"{busy_pct(one):.0f} %",
            )
    six, settings = standings(SIX), standings(SETTINGS)
    yield f"is {tokens(six['adamw_torch']).ratio:.2f} times as fast as the paged one in 8 bits"
    first, second = (six[name].results[0].startup.import_s for name in ("baseline", "adamw_torch"))
    yield f"imported for {first:.1f} s, the next one for {second:.1f} s"
    yield f"takes {gb(six['adamw_torch']) - gb(six['baseline']):.2f} GB more"
    yield f"The GPU is busy for {busy_pct(six['seq 512']):.0f} % of the time"
    windows = [w.samples_per_second for w in six["seq 512"].results[0].performance.windows]
    yield f"windows of {min(windows):.1f} to {max(windows):.1f} samples/s"
    yield f"makes tier B {tokens(settings['compile']).text()} as fast, in {gb(settings['compile']):.2f} GB"
    yield f"tf32 is {step(SETTINGS).speed_up.text()} as fast as fp32"
    wider = [gb(settings[name]) / gb(settings["baseline"]) for name in ("fp16", "fp32", "tf32")]
    yield f"{min(wider):.1f} to {max(wider):.1f} times the memory of bf16"
    eager = tokens(settings["eager attention"]).ratio
    yield f"takes {1 / eager:.1f} times as long as with the kernel that torch chooses"
    yield f"in {gb(settings['eager attention']) / gb(settings['baseline']):.1f} times the memory"
