"""Writes and reads verdict.json, one result at a time: neither its text nor equal parts are held in memory twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from pydantic import TypeAdapter

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import refuse_dense
from bench_image.contract.result import RunResult
from trainbench.prices.run_cost import RunCost
from trainbench.results.campaign import Campaign
from trainbench.results.shared_parts import SharedParts, without_steps

# One space of indentation for each level. No other line begins this way, because texts have no line breaks.
RESULTS, NONE, END = b'\n "results": [\n', b'\n "results": [],\n', b"\n ],\n"
FIRST, LAST = b"  {\n", b"\n  }"
NEXT = b",\n"
COSTS, NO_COSTS = b'\n "costs": [\n', b'\n "costs": [],\n'
ONE_COST = TypeAdapter(RunCost)
READ_BYTES = 200_000
MAX_PART_BYTES = 50_000_000  # of one result, and of what stands before the results: 10 times what ours have
MAX_TAIL_BYTES = 400_000_000  # of what stands after the results: 100,000 runs make 100 MB


class PartTooLarge(ValueError):
    """A part of the file would take more memory than any part of ours."""


def campaign_json(campaign: Campaign) -> Iterator[bytes]:
    """The text of `model_dump_json(indent=1)`, in pieces: one for each result and each cost."""
    rest = campaign.model_copy(update={"results": (), "costs": ()})
    head, _, after = rest.__pydantic_serializer__.to_json(rest, indent=1).partition(NONE)
    between, _, tail = after.partition(NO_COSTS)
    yield head
    yield from _list(RESULTS, campaign.results, NONE)
    yield between
    yield from _list(COSTS, campaign.costs, NO_COSTS)
    yield tail


def _list(begin: bytes, parts: Sequence[RunResult | RunCost], none: bytes) -> Iterator[bytes]:
    """A list that is a field of the campaign. `none`: its text where it is empty."""
    if not parts:
        yield none
        return
    for place, part in enumerate(parts):
        text: bytes = vars(type(part))["__pydantic_serializer__"].to_json(part, indent=1)
        yield (NEXT if place else begin) + b"  " + text.replace(b"\n", b"\n  ")
    yield END


def parse_campaign(file: BinaryIO, with_steps: bool = True) -> Campaign:
    """Parse a campaign. Without `with_steps` its results come without the times of single steps. Raises
    ValidationError and PartTooLarge.
    """
    campaign = _streamed(_Text(file), with_steps)
    if campaign is not None:
        return campaign
    file.seek(0)  # no results, or another program wrote the file
    return Campaign.model_validate_json(_not_dense(_bounded(file.read(MAX_PART_BYTES + 1), MAX_PART_BYTES)))


def _bounded(text: bytes, most: int) -> bytes:
    if len(text) > most:
        raise PartTooLarge(f"more than {most} bytes stand in one piece, which trainbench never writes")
    return text


def _not_dense(text: bytes) -> bytes:
    """pydantic takes 90 times the bytes of `[],[],[],`."""
    try:
        refuse_dense(text)
    except ContractError as error:
        raise PartTooLarge(str(error)) from None
    return text


def _streamed(text: _Text, with_steps: bool) -> Campaign | None:
    """The campaign, parsed result by result; None where the text is not laid out as `campaign_json` writes it."""
    head = text.take_until(RESULTS)
    if head is None:
        return None
    parts = SharedParts()
    parsed = map(RunResult.model_validate_json, _objects(text))
    results = tuple(parts.share(result if with_steps else without_steps(result)) for result in parsed)
    if not results or not text.starts_with(END):
        return None
    text.take_until(END)
    lists: dict[str, object] = {"results": results}
    if (between := text.take_until(COSTS, MAX_TAIL_BYTES)) is not None:
        lists["costs"] = tuple(parts.share(ONE_COST.validate_json(cost)) for cost in _objects(text))
        if not text.starts_with(END):
            return None
        text.take_until(END)
        between += NO_COSTS
    campaign = Campaign.model_validate_json(_not_dense(head + NONE + (between or b"") + text.rest()))
    return campaign.model_copy(update=lists)


def _objects(text: _Text) -> Iterator[bytes]:
    """Yield the items of a list field of the campaign; the text goes on after the last one."""
    while text.starts_with(FIRST) and (block := text.take_until(LAST)) is not None:
        yield _not_dense(block + LAST)
        if not text.starts_with(NEXT):
            return
        text.take_until(NEXT)


class _Text:
    """A file, read piece by piece."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._held = file, b""

    def starts_with(self, mark: bytes) -> bool:
        while len(self._held) < len(mark) and self._read():
            pass
        return self._held.startswith(mark)

    def take_until(self, mark: bytes, most: int | None = None) -> bytes | None:
        """What stands before the mark, at most that many bytes; the text goes on after it. None: the mark does not
        come, and all is read.
        """
        searched = 0
        while (at := self._held.find(mark, searched)) < 0:
            searched = max(0, len(self._held) - len(mark))
            if not self._read(most):
                return None
        taken, self._held = self._held[:at], self._held[at + len(mark) :]
        return taken

    def rest(self) -> bytes:
        while self._read(MAX_TAIL_BYTES):
            pass
        return self._held

    def _read(self, most: int | None = None) -> bool:
        piece = self._file.read(READ_BYTES)
        self._held = _bounded(self._held + piece, most or MAX_PART_BYTES)
        return bool(piece)
