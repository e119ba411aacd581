"""docs/internals/detection.md says what its file says, and the file what today's rules do."""

from __future__ import annotations

import json
import math
import re
from statistics import NormalDist

import numpy
import pytest

import detection
from detection import FILE, FIRST, PAGE, Fleet, simulate, with_table

ROWS = json.loads(FILE.read_text())
SMALL = [row for row in ROWS if row["fleet"]["nodes"] <= 8]


def test_the_page_has_the_table_of_its_file() -> None:
    page = PAGE.read_text()
    assert with_table(page, ROWS) == page, "run python studies/detection.py --page"
    assert len(re.findall(r"\w[\w.,/-]*", page)) <= 1500


def test_every_case_was_simulated() -> None:
    asked = [(case, fleet.model_dump(exclude_defaults=True)) for case, of in detection.CASES.items() for fleet in of]
    assert [(row["case"], row["fleet"]) for row in ROWS] == asked


@pytest.mark.parametrize("row", SMALL[::4], ids=lambda row: str(row["fleet"]))
def test_the_rules_are_those_that_were_simulated(row: dict[str, object]) -> None:
    """Simulated nights are the same in every process: another rule gives other shares."""
    assert simulate(Fleet.model_validate(row["fleet"]), FIRST) == row["first"], "run python studies/detection.py"


def test_the_page_says_how_often_a_node_just_beyond_the_limit_is_beyond_it() -> None:
    """The rule's own estimate (the mean of one round and two re-runs beside three controls), with no chance in its
    way and no round disturbed.
    """
    assert f"in {_beyond_5_pct(noise=0.005):.0%}".replace("%", " %") in _page()
    assert f"to {_beyond_5_pct(noise=0.0):.0%} at most".replace("%", " %") in _page()


def _beyond_5_pct(noise: float, nights: int = 50_000) -> float:
    draw = numpy.random.default_rng(1)
    nodes = draw.normal(0, 0.004, (nights, 4)) + numpy.array([math.log(0.945), 0, 0, 0])
    first, *again = nodes + draw.normal(0, noise, (3, nights, 4))
    changes = [numpy.median((run - first)[:, 1:], axis=1) for run in again]
    own = [first[:, 0], *(run[:, 0] - change for run, change in zip(again, changes, strict=True))]
    beyond = numpy.mean(own, axis=0) - numpy.median(first[:, 1:], axis=1) < math.log(0.95)
    return float(beyond.mean())


def test_the_page_says_how_often_a_step_is_beyond_limit_and_chance() -> None:
    """Tonight's run and the median of ten, 0.3 % each; of one node the rounds as well, of more the error of the others'
    median, whose variance is 0.4487 of one's for three.
    """
    of_nights = math.sqrt(1 + math.pi / 20)
    one, four, many = (0.3 * of_nights * math.sqrt(more) for more in (2.0, 1.4487, 1 + math.pi / 62))
    step, limit = -100 * math.log(0.98), -100 * math.log(0.985)
    chance = four * NormalDist().inv_cdf(0.99 ** (1 / 4))
    found = [100 * NormalDist().cdf((step - least) / sd) for sd, least in ((one, limit), (four, chance))]
    said = f"scatter by {one:.2f} % together, so that one look finds the step beyond the limit of 1.5 % in"
    assert f"{said} {found[0]:.0f} % of nights" in _page()
    said = f"{four:.2f} % are left, chance shows {chance:.2f} % in one healthy night of a hundred, and"
    assert f"{said} {found[1]:.0f} % of the steps" in _page()
    assert f"Among 32 nodes {many:.2f} % are left" in _page()


def _page() -> str:
    return " ".join(PAGE.read_text().split())
