"""The shipped levels, computed anew from the results that each names."""

from __future__ import annotations

from datetime import date

from bench_image.contract.parse import parse_result
from committed import PACKED, committed
from trainbench.judging.levels import KnownLevel, made_levels

AA, GANGS, TODAY = "aa-h200-2026-11-22", "four-gpus-h200-2026-11-28", "models-h200-2026-11-28"
FILES = (
    (
        f"{AA}: nights/night-independent-*", f"{AA}: presets/tuned-*", f"{AA}: redesign/tuned-*",
        f"{AA}: redesign-nights/night-independent-*",
    ),
    (f"{AA}: ddp/night-ddp-*", f"{AA}: redesign-nights/night-ddp-*"),
    (f"{GANGS}: llama-3.1-8b-independent-*", f"{TODAY}: llama-3.1-8b-qlora-*-b8-s512-*"),
)  # fmt: skip
MADE_BY = (("0.1.0", date(2026, 11, 22)), ("0.1.0", date(2026, 11, 22)), ("0.2.0", date(2026, 11, 28)))


def levels() -> tuple[KnownLevel, ...]:
    """One for each of FILES: the two works of the nightly check, and the first of them with a model of today."""
    made: list[KnownLevel] = []
    for sources, (program, as_of) in zip(FILES, MADE_BY, strict=True):
        patterns = [source.replace(": ", "/") for source in sources]
        texts = [text for pattern in patterns for text in committed(f"{pattern}/result.json").values()]
        named = tuple(f"docs/results/{source.replace(': ', f'/{PACKED}: ')}" for source in sources)
        made += made_levels([parse_result(text.encode()) for text in texts], program, as_of, named)
    return tuple(made)
