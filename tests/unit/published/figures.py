"""Figures of a Markdown page: numbers with a unit, with decimals or with thousands."""

from __future__ import annotations

import re
from collections.abc import Iterable

UNIT = (
    r"(?:%|(?:s|ms|us|min|h|kB|MB|GB|TB|W|MHz|TFLOP|TFLOP/s|TB/s|GB/s|samples/s|tokens/s"
    r"|(?:CPU )?seconds|(?:CPU )?minutes)\b)"
)
START = r"(?<![\w.,/#-])"
FIGURE = re.compile(
    rf"{START}\d[\d,]*(?:\.\d+)?(?= ?{UNIT})"  # 62 %
    rf"|{START}\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?(?![\w.]*\w)"  # 18,463
    rf"|{START}\d+\.\d+(?![\w.]*\w)"  # 3.2, but no version such as 2.11.0
)
# Code, comments, and the tables between `<!-- name -->` and `<!-- /name -->`, which a study writes (its test compares).
FENCED = re.compile(r"```.*?```|<!-- (\w+) -->.*?<!-- /\1 -->|<!--.*?-->", re.DOTALL)
NO_PROSE = re.compile(r"\]\([^)]*\)|https?://\S+|`[^`]*`")
VERSION = re.compile(
    r"\b(?:Airflow|Celery|CUDA|Helm|Kubernetes|Prometheus|Provider|Python|PyTorch|SQLite|torch"
    r"|compute capability|version) \d+\.\d+(?:(?:,| to| and) \d+\.\d+)*",
    re.IGNORECASE,
)


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def claimed(text: str) -> str:
    """The page as claims see it: without code blocks and comments, on one line."""
    return on_one_line(FENCED.sub(" ", text))


def missing(text: str, claims: Iterable[str]) -> list[str]:
    page = claimed(text)
    return [claim for claim in claims if on_one_line(claim) not in page]


def unclaimed(text: str, claims: Iterable[str]) -> list[str]:
    """Figures outside the claims, each with the words around it."""
    page = claimed(text)
    for claim in sorted(map(on_one_line, claims), key=len, reverse=True):
        page = page.replace(claim, " | ")
    page = on_one_line(VERSION.sub(" ", NO_PROSE.sub(" ", page)))
    return [page[max(0, at.start() - 40) : at.end() + 30] for at in FIGURE.finditer(page)]
