from __future__ import annotations

from datetime import UTC, datetime

import pytest

from trainbench.core.formats import (
    count,
    degrees,
    duration,
    figure,
    listing,
    moment,
    noise_share,
    one_line,
    percent,
    sentence,
    share,
    usd,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12220.34, "12,220"),
        (1.46, "1.460"),
        (0.048938, "0.04894"),
        (0.0, "0.000"),
        (-1.5, "\u22121.500"),
        (None, "n/a"),
    ],
)
def test_figures_keep_four_significant_digits(value: float | None, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(3.21, "3.2 %"), (100.0, "100.0 %"), (4064.5, "more than 100 %"), (None, "n/a")]
)
def test_noise_beyond_the_mean_itself_is_no_figure(value: float | None, text: str) -> None:
    """It read "noise 4064.5 %"."""
    assert noise_share(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(998.9, "+998.9 %"), (4064.5, "more than +999 %"), (-4064.5, "more than \u2212999 %")]
)
def test_no_deviation_has_four_digits(value: float, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(("value", "text"), [(-5.23, "\u22125.2 %"), (0.42, "+0.4 %"), (-0.04, "0.0 %"), (None, "n/a")])
def test_deviations_carry_their_sign(value: float | None, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.1142, "$0.114"), (0.0015234, "$0.00152"), (2.415, "$2.42"), (None, "n/a")]
)
def test_dollars(value: float | None, text: str) -> None:
    assert usd(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.4894, "489 ms"),
        (12.34, "12.3 s"),
        (302.0, "5 min 02 s"),
        (11100.0, "3 h 05 min"),
        (72 * 3600.0, "72 h 00 min"),
        (588 * 3600.0, "24.5 days"),
        (None, "n/a"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_small_formats() -> None:
    assert (share(41.23), degrees(61.4)) == ("41.2 %", "61 °C")
    assert (count(1, "node"), count(1200, "run")) == ("1 node", "1,200 runs")
    assert listing(["a"]) == "a"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert listing("abcdefg", most=5) == "a, b, c, d, e and 2 more"
    assert listing([]) == "none"
    assert (sentence("hot "), sentence("hot!")) == ("hot.", "hot!")
    assert moment(datetime(2026, 11, 21, 2, 0, 5, tzinfo=UTC)) == "2026-11-21 02:00:05 UTC"


def test_one_line_takes_out_breaks_and_control_characters_and_cuts() -> None:
    assert one_line("a\n\tb\x1b[31m c") == "a b [31m c"
    assert one_line("abcdef", most=4) == "abc…"
