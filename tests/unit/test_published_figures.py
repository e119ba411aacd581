"""Figures in the docs belong to result files: each is computed again from them, or is listed as no measurement.

`published/` computes what the pages say. A new figure fails until it is computed there, or listed in
`published/no_measurement.toml`.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from tests.unit.published import speed, tries
from tests.unit.published.figures import missing, unclaimed
from trainbench.judging import noise

ROOT = Path(__file__).resolve().parents[2]
AA = ROOT / "docs/results/aa-h200-2026-11-22"
CLAIMS: dict[str, Callable[[], Iterator[str]]] = {
    "docs/performance.md": speed.performance,
    "docs/performance-tries.md": tries.tries,
}
LISTED = tomllib.loads(Path(__file__).with_name("published").joinpath("no_measurement.toml").read_text())
PAGES = list(CLAIMS)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", CLAIMS)
def test_the_page_says_what_its_result_files_say(page: str) -> None:
    assert missing(text_of(page), CLAIMS[page]()) == []


@pytest.mark.parametrize("page", LISTED["no_measurement"])
def test_what_is_listed_stands_on_the_page(page: str) -> None:
    assert missing(text_of(page), LISTED["no_measurement"][page]) == []


@pytest.mark.parametrize("page", PAGES)
def test_no_other_figure_stands_on_the_page(page: str) -> None:
    computed = list(CLAIMS[page]()) if page in CLAIMS else []
    assert unclaimed(text_of(page), [*computed, *LISTED["no_measurement"].get(page, [])]) == []


def test_a_figure_is_a_number_with_a_unit_with_decimals_or_with_thousands() -> None:
    text = "On 2 GPUs it makes 18,463 tokens/s in 38.8 GB, 3.23 times; 62 % of `9.9 s`, torch 2.11.0, [b](c/1.5.md)."
    assert len(unclaimed(text, [])) == 4
    assert unclaimed(text, ["18,463 tokens/s in 38.8 GB, 3.23 times; 62 %"]) == []
    assert missing(text, ["3.23 times", "3.24 times"]) == ["3.24 times"]


def runs(pattern: str) -> list[RunResult]:
    return [parse_result(path.read_bytes()) for path in sorted(AA.glob(f"{pattern}/result.json"))]


def rates(pattern: str) -> list[float]:
    return [run.performance.samples_per_second or 0.0 for run in runs(pattern)]


def spread(*samples: list[float]) -> noise.Noise:
    """Standard deviation of log rates about each sample's mean, pooled."""
    logs = [[math.log(rate) for rate in sample] for sample in samples]
    squares = sum((value - statistics.fmean(sample)) ** 2 for sample in logs for value in sample)
    freedom = sum(len(sample) - 1 for sample in logs)
    return noise.Noise(math.sqrt(squares / freedom), freedom)


def beyond_chance_pct(actual: noise.Noise) -> float:
    return noise.to_pct(actual.half_width(1 + noise.median_variance(3)), slow=True)


def row(folder: str, start: str) -> str:
    lines = (AA / "README.md").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"| `{folder}` | {start}")]
    return line


def test_equal_runs_lie_as_far_apart_as_the_page_says() -> None:
    of = {
        ("presets", "`tuned`"): "presets/tuned-*",
        ("presets", "`as_users_run`"): "presets/as-users-run-*",
        ("redesign", "`tuned`"): "redesign/tuned-*",
        ("ddp", "`ddp`"): "ddp/night-ddp-*",
        ("nights", "`ddp`"): "nights/night-ddp-*",
        ("ddp-512", "`ddp`"): "ddp-512/night-ddp-*",
    }
    for place, pattern in of.items():
        items, decimals = spread(rates(pattern)), 1 if place[0] == "ddp-512" or "as-users" in pattern else 2
        assert f"| {100 * items.sd:.{decimals}f} % | {beyond_chance_pct(items):.1f} % |" in row(*place), place


def test_each_gpu_of_a_night_differs_from_itself_as_the_page_says() -> None:
    nights = runs("nights/night-independent-*")
    by_gpu = [
        [
            rank.performance.samples_per_second or 0.0
            for night in nights
            for rank in night.ranks[gpu : gpu + 1]
            if rank.performance
        ]
        for gpu in range(2)
    ]
    result = spread(*by_gpu)
    shown = row("nights", "`independent`")

    assert len(nights) == 5
    assert result.degrees_of_freedom == 8
    assert f"{min(map(min, by_gpu)):.2f} to {max(map(max, by_gpu)):.2f} a GPU" in shown
    assert f"{100 * result.sd:.2f} % (pooled over the GPUs) | {beyond_chance_pct(result):.1f} %" in shown


def test_the_pods_of_a_night_end_when_the_page_says() -> None:
    for folder, strategy in (("nights", "independent"), ("nights", "ddp"), ("ddp", "ddp"), ("ddp-512", "ddp")):
        cold, *warm = [run.startup.total_s or 0.0 for run in runs(f"{folder}/night-{strategy}-*")]

        assert f"| {cold:.1f} s | {min(warm):.1f} to {max(warm):.1f} s |" in row(folder, f"`{strategy}`")


def readme() -> str:
    return " ".join((ROOT / "README.md").read_text().split())


def test_readme_gives_the_rates_of_both_presets_and_the_noise_of_a_night() -> None:
    folder = ROOT / "docs/results/kept-h200-2026-11-22/results"
    of = {
        preset: [
            parse_result((folder / f"machine3-{preset}-qlora-8x512-r{turn}/result.json").read_bytes()).performance
            for turn in (1, 2)
        ]
        for preset in ("tuned", "users")
    }
    tuned, users = ([f"{run.tokens_per_second or 0:,.0f}" for run in of[preset]] for preset in ("tuned", "users"))
    assert f"makes {tuned[0]} and {tuned[1]} tokens/s as `tuned`, {users[0]} and {users[1]} with" in readme()
    assert "differ by 0.07 % per GPU" in readme()
    assert "0.07 % (pooled over the GPUs)" in row("nights", "`independent`")


def test_readme_gives_the_largest_night_that_ran() -> None:
    nights = [json.loads(path.read_text()) for path in (ROOT / "docs/results").glob("nights-*/after-*.json")]
    assert f"a night of up to {max(night['num_nodes'] for night in nights):,} nodes" in readme()


def test_readme_has_at_most_900_words() -> None:
    assert len(readme().split()) <= 900


DRILL_ROW = re.compile(r"^ (node-\d) +([\d.]+) +(\S+ %) +([\d.]+) +n/a: no GPU +(.+)$", re.MULTILINE)


def test_readmes_drill_adds_up_and_reads_as_the_terminal_does() -> None:
    """A deviation is that of the rate from the median of the well nodes, within what rounding to 4 digits hides."""
    text = (ROOT / "README.md").read_text()
    terminal = (ROOT / "tests/golden/terminal-cpu-drill.txt").read_text()
    rows = {node: (float(rate), shown, state) for node, rate, shown, _, state in DRILL_ROW.findall(text)}
    reference = statistics.median(rate for rate, _, state in rows.values() if state == "ok")

    assert len(rows) == 4
    for rate, shown, _ in rows.values():
        assert abs(float(shown.removesuffix(" %").replace("−", "-")) - 100 * (rate / reference - 1)) < 0.15
    (header,) = re.findall(r"^ node  +samples/s .*$", terminal, re.MULTILINE)
    assert header.split() in [line.split() for line in text.splitlines()]
    (state,) = [state for _, _, state in rows.values() if state != "ok"]
    again = re.fullmatch(r"breach: slow, confirmed \((−[\d.]+ %)\), drill", state)
    assert again is not None
    sentence = (
        f"Drill detected: node-3 (samples/s {rows['node-3'][1]}, limit ±40 %, confirmed by a re-run with {again[1]})."
    )
    assert f"{sentence} Apart from the drill, all 3 nodes are well." in readme()
    assert re.sub(r"[−±][\d.]+", "N", sentence) in " ".join(re.sub(r"[−±][\d.]+", "N", terminal).split())
