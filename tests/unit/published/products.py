"""Figures of the study of products, which two pages have."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import Any

from tests.unit.published.measured import PRODUCTS, RESULTS, document, each, row

LAYERS = 32  # of Mistral-7B
TOKENS = 16_384  # of a step of LoRA 8 x 2048
LEAST_GAIN_PCT = 1.0  # as in studies/measure_products.py
LAYER = "forward gate and up, B beside, 16384 tokens"  # the first product of a sequence names it
WITHOUT_ADAPTERS = "forward gate and up, no adapters, 16384 tokens"


def measured() -> Any:
    return document(f"{PRODUCTS}/products.json")


def best_of(rates: dict[str, list[float]]) -> str:
    return max(rates, key=lambda name: statistics.median(rates[name]))


def is_chosen(rates: dict[str, list[float]]) -> bool:
    pairs = zip(rates[best_of(rates)], rates["torch"], strict=True)
    return min(100 * (ours / torchs - 1) for ours, torchs in pairs) >= LEAST_GAIN_PCT


def table() -> Iterator[str]:
    """One row for each product: the rates of torch's algorithm and of the best, in the three rounds."""
    for name, of in measured()["products"].items():
        rates = of["tflops"]
        product, tokens = name.rsplit(", ", 1)
        best = best_of(rates)
        cells = (", ".join(f"{rate:.0f}" for rate in rates[each]) for each in ("torch", best))
        how = best if is_chosen(rates) else "torch's"
        yield row(product, f"{int(tokens.split()[0]):,}", *cells, how)


def layers() -> Iterator[str]:
    for label, name in (("LoRA on all seven", LAYER), ("MLP without adapters", WITHOUT_ADAPTERS)):
        of = measured()["layer_ms"][name]
        cells = (", ".join(f"{ms:.2f}" for ms in of[each]) for each in ("torch", "chosen"))
        yield row(label, *cells, f"{gain_pct(name):.1f} %")


def gain_pct(name: str) -> float:
    of = measured()["layer_ms"][name]
    return 100 * (statistics.fmean(of["torch"]) / statistics.fmean(of["chosen"]) - 1)


def saved_ms(name: str) -> float:
    """Of a step, which has LAYERS such sequences."""
    of = measured()["layer_ms"][name]
    return LAYERS * (statistics.fmean(of["torch"]) - statistics.fmean(of["chosen"]))


def beside() -> Iterator[str]:
    of = document(f"{PRODUCTS}/beside.json")
    for label, before, after in (
        ("forward, gate and up", "forward gate and up: added", "forward gate and up: beside"),
        ("gradient, down", "gradient down: back_added", "gradient down: back_below"),
    ):
        yield row(label, *(", ".join(f"{ms:.2f}" for ms in of[each]) for each in (before, after)))


def beside_saves_ms() -> float:
    of = {name: statistics.fmean(ms) for name, ms in document(f"{PRODUCTS}/beside.json").items()}
    forward = of["forward gate and up: added"] - of["forward gate and up: beside"]
    return LAYERS * (forward + of["gradient down: back_added"] - of["gradient down: back_below"])


def proposals() -> Iterator[str]:
    of = measured()["products"].values()
    (proposed,) = {len(each["proposed"]) for each in of}
    (screened,) = {len(each["screened_tflops"]) for each in of}
    others = [each["others"] for each in of]
    yield f"proposes {proposed}, and its check accepts {min(others):,} to {max(others):,} others"
    yield f"of which {screened - proposed} were timed"


def short_timing() -> Iterator[str]:
    """The first three calls of the first candidate of the first product, cold, and what it keeps in its turns."""
    of = measured()["products"][LAYER]
    rate, algorithm = of["screened_tflops"][0]
    kept = of["tflops"][str(algorithm)]
    yield f"made {rate:.0f} TFLOP/s in its first three calls and {each(kept, '.0f')} in its turns"


def turns() -> dict[str, Any]:
    return {run["name"]: run for run in document(f"{PRODUCTS}/turns.json")}


def gains_pct() -> list[float]:
    """Of the run with the table over the run before it, and over the one after it."""
    of = turns()
    return [100 * (of["table-1"]["tokens_per_s"] / of[name]["tokens_per_s"] - 1) for name in ("torch-1", "torch-2")]


def whole_runs() -> Iterator[str]:
    of = turns()
    for name, run in of.items():
        windows = ", ".join(f"{rate:.3f}" for rate in run["samples_per_s"])
        machine = f"{run['power_w']:.0f} W", f"{run['clock_mhz']:,.0f} MHz"
        yield row(f"`{name}`", f"{run['tokens_per_s']:,.0f}", windows, f"{run['mfu_pct']:.1f} %", *machine)
    (cut,) = re.findall(r"window=1/2 steps=6 samples_per_s=(\S+)", (RESULTS / PRODUCTS / "table-2-log.txt").read_text())
    yield row("`table-2`", "not known", cut, *["not known"] * 3)
    table, *torchs = [of[name]["tokens_per_s"] for name in ("table-1", "torch-1", "torch-2")]
    mean_ms = statistics.fmean(1e3 * TOKENS / rate for rate in torchs)
    yield f"{each(gains_pct(), '.1f')} % faster"
    yield f"{100 * (table / statistics.fmean(torchs) - 1):.1f} % than their mean"
    yield f"{mean_ms - 1e3 * TOKENS / table:.1f} ms of a step of {mean_ms:.1f} ms"
    yield f"differ by {100 * (max(torchs) / min(torchs) - 1):.1f} %"
    (peak,) = {run["peak_gb"] for run in of.values()}
    yield f"the same, {peak:.3f} GB"


def losses_apart() -> Iterator[str]:
    losses = {name: run["losses"] for name, run in turns().items()}

    def most(one: str, other: str) -> float:
        return max(abs(mine - theirs) for mine, theirs in zip(losses[one], losses[other], strict=True))

    of_table = max(most("table-1", name) for name in ("torch-1", "torch-2"))
    yield f"by at most {of_table:.4f}, they from each other by {most('torch-1', 'torch-2'):.4f}"


def checked() -> Iterator[str]:
    """The products as the program makes them: in sequence, and their results against torch's."""
    of = document(f"{PRODUCTS}/check.json")
    ours, torchs = of["layer_ms"]["chosen"], of["layer_ms"]["torch"]
    saved = statistics.fmean(torchs) - statistics.fmean(ours)
    yield f"{each(ours, '.2f')} ms a layer instead of {each(torchs, '.2f')}"
    yield f"{100 * saved / statistics.fmean(ours):.1f} % faster, or {LAYERS * saved:.1f} ms of a step"
    tried = [outcome for product in of["products"].values() for outcome in product["equal and error_pct"].values()]
    assert all(equal for equal, _ in tried)
    assert all(equal for kind in ("launched", "replayed") for equal in of["layer"][kind]["equal to torch"])
    yield f"{len(tried)} pairs of product and algorithm"
    for name in ("forward gate and up", "gradient down"):
        yield f"{name} {of['products'][name]['chosen']}"


def whole_runs_in_tries() -> Iterator[str]:
    table, before, after = (turns()[name] for name in ("table-1", "torch-1", "torch-2"))
    rates = [f"{run['tokens_per_s']:,.0f}" for run in (table, before, after)]
    yield f"{rates[0]} tokens/s between {rates[1]} and {rates[2]}"
    yield f"{each(gains_pct(), '.1f')} % faster, {table['mfu_pct']:.1f} % MFU between {before['mfu_pct']:.1f} and"
    yield f"{after['mfu_pct']:.1f} %"


def note() -> Iterator[str]:
    yield f"{min(gains_pct()):.1f} to {max(gains_pct()):.1f} % faster"
    yield from whole_runs()
    yield from losses_apart()
    yield from checked()
    yield from table()
    yield from layers()
    yield from beside()
    yield from proposals()
    yield from short_timing()


def in_short() -> Iterator[str]:
    yield f"[{each(gains_pct(), '.1f')} % faster]"
