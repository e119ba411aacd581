"""Converts a public price catalogue to rows of our price table. Rows that do not fit are counted, with the reason.

Read by their column names: skypilot-catalog's `vms.csv`, gpuhunt's catalogue (CSV, or its objects as a JSON list), and
a CSV with the columns of our own table.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from bench_image.contract.frozen import Frozen
from bench_image.contract.parse import explain, refuse_dense
from trainbench.core.formats import count, one_line
from trainbench.core.outside_text import outside_text
from trainbench.prices.price_tables import USD_FIELDS, Price, PriceError

TWO_MEMORIES = {"A100": (40, 80), "V100": (16, 32)}  # each is sold with either memory; GB as in the name
NVL_MEMORY_GB = 94  # an H100 with it is the NVL one, whatever the catalogue calls it
# Accelerators of these catalogues that are no NVIDIA GPU, by how their names begin.
NOT_NVIDIA = ("tpu", "trainium", "inferentia", "gaudi", "mi2", "mi3", "radeon", "v710", "xilinx", "ponte", "alveo")
_AS_NVML = {
    **{f"a{number}": f"RTX A{number}" for number in (2000, 4000, 4500, 5000, 5500, 6000)},
    "rtx6000": "Quadro RTX 6000",
    "h100mega": "H100",
}


class GpuNameError(ValueError):
    """A name without a GPU, or with several possible ones; the message has the reason."""


def nvml_name(name: str, memories_gb: Collection[int] = ()) -> str:
    """`A100-80GB` -> `A100 80GB`, `RTX4090` -> `RTX 4090`, `H100-SXM` -> `H100`. `memories_gb`: what the catalogue may
    mean as the memory of one GPU, for names that are sold with two. Raises GpuNameError.
    """
    plain = " ".join(re.split(r"[\s_-]+", name.strip()))
    key = plain.lower().replace(" ", "")
    if not key:
        raise GpuNameError("no GPU is named")
    if key.startswith(NOT_NVIDIA):
        raise GpuNameError("not an NVIDIA GPU")
    if key in _AS_NVML:
        return _AS_NVML[key]
    words = [word for word in _split(plain) if not re.fullmatch(r"(?i)nvidia|tesla|geforce|sxm\d?|hbm\d?e?", word)]
    family = words[0].upper() if words else ""
    if family in TWO_MEMORIES and not any(re.fullmatch(r"(?i)\d+gb?", word) for word in words):
        small, large = TWO_MEMORIES[family]
        stated = {small, large} & set(memories_gb)  # a bare name stands for the smaller one, as is the custom
        if memories_gb and len(stated) != 1:
            raise GpuNameError(f"{family} with {small} or {large} GB: the file does not say which")
        words.insert(1, f"{min(stated, default=small)}GB")
    if words == ["H100"] and NVL_MEMORY_GB in memories_gb:
        words.append("NVL")
    return " ".join(filter(None, map(_written, words)))


def _split(plain: str) -> list[str]:
    """`RTX4090Ti` -> RTX, 4090, Ti; `RTXA6000` -> RTX, A6000; `H100NVL` -> H100, NVL."""
    apart = re.sub(r"(?i)\b(rtx|gtx)(?=[a-z]?\d|pro)", r"\1 ", plain)
    apart = re.sub(r"(?i)\b(pro)(?=\d)", r"\1 ", apart)
    apart = re.sub(r"(?i)(?<=\d)(nvl|pcie|sxm\d?|ti|super|ada)(?=super\b|\b)", r" \1 ", apart)
    return apart.split()


def _written(word: str) -> str:
    memory = re.fullmatch(r"(?i)(\d+)gb?", word)
    if memory:
        return f"{memory[1]}GB"
    return {"pcie": "PCIe", "ti": "Ti", "ada": "Ada Generation", "generation": ""}.get(word.lower(), word.upper())


MAX_BYTES = 200_000_000
DENSEST = 16.0  # times the bytes in memory: compact rows of gpuhunt count 10
EXAMPLES = 3  # rows named for each reason
Cells = Mapping[str, Any]


class Skip(ValueError):
    """The reason why a row of the file is no row of the table."""


class SkippedRows(Frozen):
    """`rows` are line numbers of the file (of a JSON list: places), the first few of `count`."""

    reason: str
    count: int
    rows: tuple[int, ...]


class ImportedPrices(Frozen):
    """`num_rows`: rows of the file; all became `prices` except those in `skipped`. Zones of a region are one row."""

    prices: tuple[Price, ...]
    num_rows: int
    skipped: tuple[SkippedRows, ...]


class Columns(NamedTuple):
    """The columns of a kind of catalogue; the first four must be there. None: it has no such column."""

    instance: str
    gpu: str
    num_gpus: str
    on_demand_usd: str
    region: str
    spot_usd: str | None = None
    provider: str | None = None
    as_of: str | None = None
    source: str | None = None


SKYPILOT = Columns("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region", "SpotPrice")
GPUHUNT = Columns("instance_name", "gpu_name", "gpu_count", "price", "location", provider="provider")
OWN = Columns(
    "instance", "gpu", "gpus_per_instance", "on_demand_usd_per_hour", "region", "spot_usd_per_hour", "provider",
    "as_of", "source",
)  # fmt: skip


def import_prices(path: Path, provider: str | None, as_of: date | None, source: str | None) -> ImportedPrices:
    """Provider, date and source come from the file, else from the arguments. Raises PriceError."""
    rows = _rows(path)
    if not rows:
        raise PriceError(f"{path} holds no row: give a CSV with a line of column names, or a JSON list of objects")
    there = {name for name in rows[0][1] if name}
    catalogues = (SKYPILOT, GPUHUNT, OWN)
    columns = next((each for each in catalogues if {*each[:4]} <= there), None)
    if columns is None:
        needed = "; or ".join(", ".join(sorted(each[:4])) for each in catalogues)
        found = one_line(", ".join(sorted(there)))
        raise PriceError(f"{path} has the columns {found}: at least these are needed: {needed}")
    offers: dict[tuple[object, ...], list[tuple[int, dict[str, Any]]]] = {}
    skipped: dict[str, list[int]] = {}
    for number, row in rows:
        try:
            offer = _offer(row, columns)
        except (Skip, GpuNameError) as reason:
            skipped.setdefault(str(reason), []).append(number)
            continue
        offer["provider"] = offer["provider"] or provider or ""
        key = tuple(offer[name] for name in ("provider", "instance", "region", "gpu", "gpus_per_instance"))
        offers.setdefault(key, []).append((number, offer))
    prices = []
    for members in offers.values():
        try:
            prices.append(_price([offer for _, offer in members], as_of, source))
        except Skip as reason:
            skipped.setdefault(str(reason), []).extend(number for number, _ in members)
    reasons = (SkippedRows(reason=why, count=len(at), rows=tuple(at[:EXAMPLES])) for why, at in skipped.items())
    return ImportedPrices(
        prices=tuple(prices),
        num_rows=len(rows),
        skipped=tuple(sorted(reasons, key=lambda skip: (-skip.count, skip.reason))),
    )


def as_toml(prices: Iterable[Price]) -> str:
    """The text of a price table that load_prices() reads."""
    tables = []
    for price in prices:
        values = price.model_dump(mode="json", exclude={"own", "currency"}, exclude_none=True)
        as_of = values.pop("as_of")
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
        tables.append("\n".join(["[[price]]", *lines, f"as_of = {as_of}"]) + "\n")
    return "\n".join(tables)


def _rows(path: Path) -> list[tuple[int, Cells]]:
    try:
        text = outside_text(path, MAX_BYTES)
    except OSError as error:
        raise PriceError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise PriceError(f"{path} is no price catalogue: {error}") from None
    if not text.lstrip().startswith("["):
        try:
            table = csv.DictReader(io.StringIO(text), strict=True)
            return [(table.line_num, row) for row in table]
        except csv.Error as error:
            raise PriceError(f"{path} is no CSV with a line of column names: {error}") from None
    try:
        refuse_dense(text.encode(), DENSEST)
        rows = json.loads(text)  # with the NaN that pandas writes into cells without a value
    except (ValueError, RecursionError) as error:
        raise PriceError(f"{path} is no JSON: {error}") from None
    if not all(isinstance(row, dict) for row in rows):
        raise PriceError(f"{path}: its JSON list holds something that is no object")
    return list(enumerate(rows, 1))


def _offer(row: Cells, columns: Columns) -> dict[str, Any]:
    """One row of a catalogue: on demand, spot, or both, as the fields of a Price. Raises Skip and GpuNameError."""
    if (currency := _text(row, "currency") or "USD") != "USD" and columns is OWN:
        raise Skip(f"in {one_line(currency, 20)}: convert it to USD, and put the rate and its date into `source`")
    gpu, instance = _text(row, columns.gpu), _text(row, columns.instance)
    if not gpu and columns is not OWN:
        raise Skip("a machine without a GPU")
    if not instance and columns is SKYPILOT:
        raise Skip("the price of a GPU without its machine: an instance costs more")
    number = _number(row, columns.num_gpus)
    if number is None or number < 1 or number != int(number):
        raise Skip(f"{columns.num_gpus} is no whole number of GPUs")
    if columns is SKYPILOT:
        gpu = nvml_name(gpu, _memories_gb(row.get("GpuInfo"), int(number)))
    elif columns is GPUHUNT:
        memory = _number(row, "gpu_memory")
        gpu = nvml_name(gpu, () if memory is None else (round(memory),))
        instance = instance or "not stated"
    on_demand = _usd(row, columns.on_demand_usd)
    spot = _usd(row, columns.spot_usd, zero_is_none=columns is SKYPILOT)
    if columns is GPUHUNT and _text(row, "spot").lower() in ("true", "1", "yes"):
        on_demand, spot = None, on_demand
    return {
        "provider": _text(row, columns.provider),
        "instance": one_line(instance),
        "gpu": one_line(gpu),
        "gpus_per_instance": int(number),
        "region": one_line(_text(row, columns.region) or "not stated"),
        "on_demand_usd_per_hour": on_demand,
        "spot_usd_per_hour": spot,
        **({name: _usd(row, name) for name in USD_FIELDS[2:]} if columns is OWN else {}),
        "as_of": _text(row, columns.as_of),
        "source": _text(row, columns.source),
    }


def _price(offers: Sequence[Mapping[str, Any]], as_of: date | None, source: str | None) -> Price:
    """Zones of one region have one price on demand; of their spot prices the median."""
    on_demand = {offer["on_demand_usd_per_hour"] for offer in offers} - {None}
    spot = [offer["spot_usd_per_hour"] for offer in offers if offer["spot_usd_per_hour"] is not None]
    first = offers[0]
    if not on_demand:
        raise Skip("only a spot price" if spot else "no price")
    if len(on_demand) > 1:
        raise Skip("several prices for one instance in one region")
    if not first["provider"]:
        raise Skip("no provider: give --provider, or a column provider")
    if not (first["source"] or source):
        raise Skip("no source: give --source, or a column source")
    if not (first["as_of"] or as_of):
        raise Skip("no date: give --as-of, or a column as_of")
    try:
        day = date.fromisoformat(first["as_of"]) if first["as_of"] else as_of
    except ValueError:
        raise Skip(f"as_of is {one_line(first['as_of'], 30)!r}: write it as 2026-11-21") from None
    about = {
        "on_demand_usd_per_hour": on_demand.pop(),
        "spot_usd_per_hour": statistics.median(spot) if spot else None,
        "as_of": day,
        "source": one_line(first["source"] or source or ""),
    }
    try:
        return Price.model_validate({**first, **about})
    except ValidationError as error:
        raise Skip(explain(error)) from None


def _text(row: Cells, column: str | None) -> str:
    value = row.get(column) if column else None
    return "" if value is None else str(value).strip()


def _number(row: Cells, column: str | None) -> float | None:
    text = _text(row, column)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        raise Skip(f"{column} is no number") from None
    if not math.isfinite(number):
        raise Skip(f"{column} is {text.lower()}")
    return number


def _usd(row: Cells, column: str | None, zero_is_none: bool = False) -> float | None:
    number = _number(row, column)
    if number is None or (number == 0 and zero_is_none):
        return None
    if number <= 0:
        raise Skip(f"{column} is {'0' if number == 0 else 'negative'}")
    return number


def _memories_gb(gpu_info: object, num_gpus: int) -> tuple[int, ...]:
    """skypilot-catalog gives the memory in MiB, of one GPU or of all of them; some of its files in GB."""
    sizes = [int(size) for size in re.findall(r"'SizeInMiB': (\d{1,9})(?!\d)", str(gpu_info or ""))[:1]]
    in_gb = {round(size / 1024) if size >= 1024 else size for size in sizes}
    return tuple(sorted(in_gb | {size // num_gpus for size in in_gb}))


def import_summary(imported: ImportedPrices) -> str:
    """ "4 prices of 2 GPUs from 9 rows; 3 left out"."""
    left = sum(skip.count for skip in imported.skipped)
    gpus = count(len({price.gpu for price in imported.prices}), "GPU")
    return f"{count(len(imported.prices), 'price')} of {gpus} from {count(imported.num_rows, 'row')}; {left:,} left out"
