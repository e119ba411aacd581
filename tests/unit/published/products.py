"""Figures of the study of products, which two pages have."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from tests.unit.published.measured import PRODUCTS, SECOND, document, each, profile, row

LAYERS = 32  # of Mistral-7B
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


def prediction() -> Iterator[str]:
    """For the step of the second round: as it is, and without the milliseconds that both changes save."""
    step = profile(f"{SECOND}/profiles/machine3-02-tuned-lora-8x2048")
    step_ms, mfu = 1e3 * 8 * 2048 / step["tokens_per_second"], step["mfu_pct"]
    choice_ms, beside_ms = saved_ms(LAYER), beside_saves_ms()
    both = step_ms - choice_ms - beside_ms
    yield f"{choice_ms:.1f} ms of a step, and adapters beside the weights {beside_ms:.1f} ms"
    yield f"from {step_ms:.0f} to {both:.0f} ms and from {mfu:.1f} to {mfu * step_ms / both:.1f} % MFU"


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


def note() -> Iterator[str]:
    yield from table()
    yield from layers()
    yield from beside()
    yield from proposals()
    yield from short_timing()


def in_tries() -> Iterator[str]:
    yield f"{gain_pct(LAYER):.1f} % faster, and {gain_pct(WITHOUT_ADAPTERS):.1f} % faster where the MLP has no adapters"
    yield from prediction()


def in_short() -> Iterator[str]:
    yield f"[{gain_pct(LAYER):.1f} % of a LoRA"
