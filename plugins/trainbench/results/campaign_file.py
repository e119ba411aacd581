"""Writes and reads verdict.json, one result at a time, so that equal parts are held in memory once."""

from __future__ import annotations

from collections.abc import Iterator

from bench_image.contract.result import RunResult
from trainbench.results.campaign import Campaign
from trainbench.results.shared_parts import SharedParts

# One space of indentation for each level. No other line begins this way, because texts have no line breaks.
RESULTS, NONE = b'\n "results": [\n', b'\n "results": [],\n'
FIRST, LAST = b"  {\n", b"\n  }"


def campaign_json(campaign: Campaign) -> bytes:
    """The text of `model_dump_json`, without a second copy in memory of hundreds of megabytes."""
    return campaign.__pydantic_serializer__.to_json(campaign, indent=1)


def parse_campaign(text: bytes) -> Campaign:
    """Parse a campaign. Raises ValidationError."""
    begin = text.find(RESULTS)
    end = text.find(b"\n ]", begin)
    blocks = tuple(_blocks(text, begin + len(RESULTS), end)) if 0 <= begin < end else ()
    if not blocks or blocks[-1].stop != end:  # no results, or another program wrote the file
        return Campaign.model_validate_json(text)
    rest = text[:begin] + NONE + text[end:].removeprefix(b"\n ],\n")
    campaign, parts = Campaign.model_validate_json(rest), SharedParts()
    results = tuple(parts.share(RunResult.model_validate_json(text[block])) for block in blocks)
    return campaign.model_copy(update={"results": results})


def _blocks(text: bytes, position: int, end: int) -> Iterator[slice]:
    """The slice of each result in the text."""
    while text.startswith(FIRST, position) and (close := text.find(LAST, position, end + len(LAST))) >= 0:
        close += len(LAST)
        yield slice(position, close)
        position = close + len(b",\n")
