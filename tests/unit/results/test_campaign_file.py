"""verdict.json, written and read a result at a time: what comes back is what went in, whatever its texts hold."""

from __future__ import annotations

import io

import pytest
from pydantic import ValidationError

from tests.builders import make_failed, make_result
from tests.builders.campaigns import make_campaign
from trainbench.results import campaign_file
from trainbench.results.campaign import Campaign
from trainbench.results.campaign_file import READ_BYTES, PartTooLarge, campaign_json, parse_campaign

HOSTILE = 'a\n "results": [\n  {\n ]\n  }'
RESULTS = (make_result("node-1"), make_result("node-2", 9.1), make_failed("node-3", message=HOSTILE))


def campaign(number: int) -> Campaign:
    made: Campaign = make_campaign(RESULTS[:number], title=HOSTILE)
    return made


def text_of(campaign: Campaign) -> bytes:
    return b"".join(campaign_json(campaign))


def parsed(text: bytes) -> Campaign:
    return parse_campaign(io.BytesIO(text))


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_what_is_read_is_what_was_written(number: int) -> None:
    written = campaign(number)

    assert text_of(written) == written.model_dump_json(indent=1).encode()
    assert parsed(text_of(written)) == written


def test_another_program_s_layout_is_read_too() -> None:
    written = campaign(2)

    assert parsed(written.model_dump_json().encode()) == written
    assert parsed(written.model_dump_json(indent=4).encode()) == written


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_no_campaign(share: float) -> None:
    text = text_of(campaign(3))

    with pytest.raises(ValidationError):
        parsed(text[: int(share * len(text))])


def test_a_result_that_is_wrong_is_refused() -> None:
    text = text_of(campaign(2)).replace(b'"measured_steps": 150', b'"measured_steps": "many"', 1)
    assert text != text_of(campaign(2)) or b"measured_steps" in text
    broken = text.replace(b'"status": "ok"', b'"status": "fine"', 1)

    with pytest.raises(ValidationError, match="status"):
        parsed(broken)


def test_no_piece_of_the_file_grows_with_the_campaign() -> None:
    """Each result and each cost is a piece of its own, and all is read by pieces of one size."""

    class Watched(io.BytesIO):
        sizes: tuple[int, ...] = ()

        def read(self, size: int | None = -1) -> bytes:
            self.sizes = (*self.sizes, size or -1)
            return super().read(size)

    written: Campaign = make_campaign([make_result(f"node-{number}") for number in range(40)])
    largest_result = max(len(result.model_dump_json(indent=4)) for result in written.results)
    file = Watched(text_of(written))

    pieces = list(campaign_json(written))

    assert len(pieces) > len(written.results) + len(written.costs)
    assert max(map(len, pieces[1:-1])) < largest_result
    assert parse_campaign(file) == written
    assert set(file.sizes) == {READ_BYTES}


def test_steps_are_left_out_where_nobody_writes_them() -> None:
    read = parse_campaign(io.BytesIO(text_of(campaign(1))), with_steps=False)

    assert [result.performance.step_times_s for result in read.results] == [()]
    assert read.results[0].performance.windows == RESULTS[0].performance.windows


@pytest.mark.parametrize("begin", [0, 1, 3000, 100_000_000])
def test_a_part_that_never_ends_is_not_held_in_memory(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros instead of the text, from the head, from within a result or after the results on."""

    class Endless(io.BytesIO):
        num_read = 0

        def read(self, size: int | None = -1) -> bytes:
            assert size is not None, "a read without a bound"
            assert size >= 0, "a read without a bound"
            text = super().read(size)
            self.num_read += size
            return text + bytes(size - len(text))

    monkeypatch.setattr(campaign_file, "MAX_PART_BYTES", 300_000)
    monkeypatch.setattr(campaign_file, "MAX_TAIL_BYTES", 500_000)
    file = Endless(text_of(campaign(2))[:begin])

    with pytest.raises(PartTooLarge, match="bytes stand in one piece, which trainbench never writes"):
        parse_campaign(file)
    assert file.num_read < 1_500_000


@pytest.mark.parametrize("mark", [b'"params": {', b'"ranks": ['])
def test_a_verdict_with_more_values_than_its_bytes_hold_is_refused_before_it_is_parsed(mark: bytes) -> None:
    with pytest.raises(PartTooLarge, match="too many values for its"):
        parsed(text_of(campaign(1)).replace(mark, mark + b"[]," * 20_000, 1))
