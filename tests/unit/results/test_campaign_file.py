"""verdict.json, written and read a result at a time: what comes back is what went in, whatever its texts hold."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.builders import make_failed, make_result
from tests.builders.campaigns import make_campaign
from trainbench.results.campaign import Campaign
from trainbench.results.campaign_file import campaign_json, parse_campaign

HOSTILE = 'a\n "results": [\n  {\n ]\n  }'
RESULTS = (make_result("node-1"), make_result("node-2", 9.1), make_failed("node-3", message=HOSTILE))


def campaign(number: int) -> Campaign:
    made: Campaign = make_campaign(RESULTS[:number], title=HOSTILE)
    return made


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_what_is_read_is_what_was_written(number: int) -> None:
    written = campaign(number)

    assert campaign_json(written) == written.model_dump_json(indent=1).encode()
    assert parse_campaign(campaign_json(written)) == written


def test_another_program_s_layout_is_read_too() -> None:
    written = campaign(2)

    assert parse_campaign(written.model_dump_json().encode()) == written
    assert parse_campaign(written.model_dump_json(indent=4).encode()) == written


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_no_campaign(share: float) -> None:
    text = campaign_json(campaign(3))

    with pytest.raises(ValidationError):
        parse_campaign(text[: int(share * len(text))])


def test_a_result_that_is_wrong_is_refused() -> None:
    text = campaign_json(campaign(2)).replace(b'"measured_steps": 150', b'"measured_steps": "many"', 1)
    assert text != campaign_json(campaign(2)) or b"measured_steps" in text
    broken = text.replace(b'"status": "ok"', b'"status": "fine"', 1)

    with pytest.raises(ValidationError, match="status"):
        parse_campaign(broken)
