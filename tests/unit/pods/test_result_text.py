"""A pod's result text: what Airflow may store, and what is refused before it does."""

from __future__ import annotations

import json
import re

import pytest

from bench_image.contract.pod_io import MAX_RESULT_BYTES
from trainbench.pods.result_text import ResultTextError, decode_result


def test_json_up_to_the_limit_is_passed_on() -> None:
    """A JSON string of n letters is n + 2 bytes with its quotes."""
    largest = "x" * (MAX_RESULT_BYTES - 2)

    assert decode_result(json.dumps(largest)) == largest
    assert decode_result('{"status": "ok"}') == {"status": "ok"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps("x" * (MAX_RESULT_BYTES - 1)), "larger than the 4,000,000 bytes allowed"),
        ('"' + "\N{EURO SIGN}" * (MAX_RESULT_BYTES // 3) + '"', "larger than the 4,000,000 bytes allowed"),
        ('{"status": "ok"', "is not JSON"),
        ("", "is not JSON"),
        ('{"mean_loss": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_an_oversized_or_broken_answer_is_refused_with_a_sentence_without_its_text(text: str, words: str) -> None:
    """The euro sign is 3 bytes: fewer characters than the limit may be more bytes."""
    with pytest.raises(ResultTextError) as refused:
        decode_result(text)

    assert words in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("number", ["1e300", "-1e19", "1e999", "9223372036854775808"])
def test_a_number_that_airflow_cannot_hand_on_is_refused(number: str) -> None:
    """PostgreSQL stores 1e300 as an integer of 301 digits, and no task could read any result of the night."""
    with pytest.raises(ResultTextError, match=f"holds the number {re.escape(number)}, larger than any figure"):
        decode_result(f'{{"samples_per_second": {number}}}')
    assert decode_result('{"bytes": 9223372036854774784, "rate": 1e18}') == {"bytes": 9223372036854774784, "rate": 1e18}
