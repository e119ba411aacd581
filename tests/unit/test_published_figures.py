"""Figures in the docs belong to result files: each is computed again from them, or is listed as no measurement.

`published/` computes what the pages say. A new figure fails until it is computed there, or listed in
`published/no_measurement.toml`.
"""

from __future__ import annotations

import re
import statistics
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.unit.published import (
    control_plane,
    host,
    links,
    notes,
    one_box,
    probes,
    speed,
    trial,
)
from tests.unit.published.figures import missing, unclaimed
from tests.unit.published.measured import RESULTS, ROOT

HOSTILE = ("hostile-inputs-2026-11-29",)
CLAIMS: dict[str, Callable[[], Iterator[str]]] = {
    "README.md": control_plane.readme,
    "docs/benchmarks.md": control_plane.benchmarks,
    "docs/command-line.md": control_plane.command_line,
    "docs/dags.md": control_plane.dags,
    "docs/internals/encoder-decoder.md": control_plane.encoder_decoder,
    "docs/internals/interconnect.md": links.interconnect,
    "docs/faq.md": control_plane.faq,
    "docs/internals/performance.md": speed.evidence,
    "docs/internals/speed.md": speed.performance,
    f"docs/results/{host.HOST}/README.md": host.note,
    f"docs/results/{probes.PROBES}/README.md": probes.note,
    **{f"docs/results/{name}/README.md": partial(notes.hostile_inputs, name) for name in HOSTILE},
    f"docs/results/{notes.FIRST_HOUR}/README.md": notes.first_hour,
    f"docs/results/{trial.TRIAL}/README.md": trial.note,
    f"docs/results/{one_box.ONE_BOX}/README.md": one_box.note,
    "docs/internals/scale.md": control_plane.scale,
    "docs/internals/security.md": control_plane.security,
    "docs/tutorial.md": control_plane.tutorial,
}
LISTED = tomllib.loads(Path(__file__).with_name("published").joinpath("no_measurement.toml").read_text())
WRITTEN: dict[str, str] = LISTED["written"]
EXEMPT = {*WRITTEN, *LISTED["other_documents"]}
DOCS = ROOT / "docs"
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("internals/**/*.md"), *RESULTS.glob("**/README.md")]
)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", CLAIMS)
def test_the_page_says_what_its_result_files_say(page: str) -> None:
    assert missing(text_of(page), CLAIMS[page]()) == []


@pytest.mark.parametrize("page", LISTED["no_measurement"])
def test_what_is_listed_stands_on_the_page(page: str) -> None:
    assert missing(text_of(page), LISTED["no_measurement"][page]) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page not in EXEMPT])
def test_no_other_figure_stands_on_the_page(page: str) -> None:
    computed = list(CLAIMS[page]()) if page in CLAIMS else []
    assert unclaimed(text_of(page), [*computed, *LISTED["no_measurement"].get(page, [])]) == []


@pytest.mark.parametrize("page", WRITTEN)
def test_the_test_of_a_written_page_is_there(page: str) -> None:
    assert (ROOT / page).exists()
    assert (ROOT / WRITTEN[page]).exists()


def test_a_figure_is_a_number_with_a_unit_with_decimals_or_with_thousands() -> None:
    text = "On 2 GPUs it makes 18,463 tokens/s in 38.8 GB, 3.23 times; 62 % of `9.9 s`, torch 2.11.0, [b](c/1.5.md)."
    assert len(unclaimed(text, [])) == 4
    assert unclaimed(text, ["18,463 tokens/s in 38.8 GB, 3.23 times; 62 %"]) == []
    assert missing(text, ["3.23 times", "3.24 times"]) == ["3.24 times"]


def readme() -> str:
    return " ".join((ROOT / "README.md").read_text().split())


def test_readme_has_at_most_700_words() -> None:
    assert len(readme().split()) <= 700


DRILL_ROW = re.compile(r"^ (node-\d) +([\d.]+) +(\S+ %) +([\w: ]+)$", re.MULTILINE)


def test_readmes_drill_adds_up() -> None:
    """A deviation is from the median of the other three, which were measured in other rounds as well: within 1 %."""
    text = (ROOT / "README.md").read_text()
    rows = {node: (float(rate), shown, state) for node, rate, shown, state in DRILL_ROW.findall(text)}
    reference = statistics.median(rate for rate, _, state in rows.values() if state == "well")
    off = {node: float(shown.removesuffix(" %").replace("−", "-")) for node, (_, shown, _) in rows.items()}

    states = {node: state for node, (_, _, state) in rows.items()}
    assert states == {"node-1": "well", "node-2": "well", "node-3": "drill: slow", "node-4": "well"}
    assert off["node-3"] == pytest.approx(100 * (rows["node-3"][0] / reference - 1), abs=1)
    assert (
        f"Drill detected: node-3 (samples/s {rows['node-3'][1]} against the median of 3 peers, limit 15 %;" in readme()
    )
