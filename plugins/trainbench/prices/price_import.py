"""Converts a public price catalogue to rows of our price table. Rows that do not fit are counted, with the reason.

Read by their column names: skypilot-catalog's `vms.csv`, and gpuhunt's CSV files.
"""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Collection, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import count, one_line
from trainbench.core.grouping import grouped
from trainbench.core.outside_text import outside_text
from trainbench.prices.price_tables import MAX_USD_PER_HOUR, Price, PriceError

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
EXAMPLES = 3  # rows named for each reason
Cells = Mapping[str, Any]

# Column -> field of a Price, of each catalogue.
SKYPILOT = {
    "InstanceType": "instance", "AcceleratorName": "gpu", "AcceleratorCount": "gpus_per_instance",
    "Price": "on_demand_usd_per_hour", "Region": "region", "SpotPrice": "spot_usd_per_hour",
}  # fmt: skip
GPUHUNT = {
    "instance_name": "instance", "gpu_name": "gpu", "gpu_count": "gpus_per_instance",
    "price": "on_demand_usd_per_hour", "location": "region",
}  # fmt: skip
WITHOUT = {
    "gpu": "a machine without a GPU",
    "instance": "the price of a GPU without its machine: an instance costs more",
}


class SkippedRows(Frozen):
    """`rows` are line numbers of the file, the first few of `count`."""

    reason: str
    count: int
    rows: tuple[int, ...]


class ImportedPrices(Frozen):
    """`num_rows`: rows of the file; all became `prices` except those in `skipped`. Zones of a region are one row."""

    prices: tuple[Price, ...]
    num_rows: int
    skipped: tuple[SkippedRows, ...]


class _Offer(Price):
    """A row of a catalogue: on demand, spot, or both."""

    on_demand_usd_per_hour: float | None = Field(None, gt=0, le=MAX_USD_PER_HOUR)  # type: ignore[assignment]


def import_prices(path: Path, provider: str, as_of: date, source: str) -> ImportedPrices:
    """The prices of a catalogue of this provider, of this day. Raises PriceError."""
    rows = _rows(path)
    if not rows:
        raise PriceError(f"{path} holds no row: give a CSV with a line of column names")
    there = {name for name in rows[0][1] if name}
    columns = next((each for each in (SKYPILOT, GPUHUNT) if each.keys() - {"SpotPrice"} <= there), None)
    if columns is None:
        kinds = "; or ".join(", ".join(sorted(each.keys() - {"SpotPrice"})) for each in (SKYPILOT, GPUHUNT))
        found = one_line(", ".join(sorted(there)))
        raise PriceError(f"{path} has the columns {found}: at least these are needed: {kinds}")
    given = {"provider": provider, "as_of": as_of, "source": source}
    offers: list[tuple[tuple[object, ...], tuple[int, _Offer]]] = []
    left_out: list[tuple[str, int]] = []
    for number, row in rows:
        try:
            offer = _offer(row, columns, given)
        except (GpuNameError, ValidationError) as error:
            left_out.append((_reason(error, columns), number))
        else:
            offers.append(((offer.instance, offer.region, offer.gpu, offer.gpus_per_instance), (number, offer)))
    prices = []
    for members in grouped(offers).values():  # zones of one region have one price on demand; of spot the median
        on_demand = {offer.on_demand_usd_per_hour for _, offer in members} - {None}
        spot = [offer.spot_usd_per_hour for _, offer in members if offer.spot_usd_per_hour is not None]
        if len(on_demand) == 1:
            costs = {
                "on_demand_usd_per_hour": on_demand.pop(),
                "spot_usd_per_hour": statistics.median(spot or [0]) or None,
            }
            prices.append(Price.model_validate(members[0][1].model_dump() | costs))
        else:
            several = "several prices for one instance in one region"
            why = several if on_demand else "only a spot price" if spot else "no price"
            left_out += [(why, number) for number, _ in members]
    reasons = (
        SkippedRows(reason=why, count=len(at), rows=tuple(at[:EXAMPLES])) for why, at in grouped(left_out).items()
    )
    return ImportedPrices(
        prices=tuple(prices),
        num_rows=len(rows),
        skipped=tuple(sorted(reasons, key=lambda skip: (-skip.count, skip.reason))),
    )


def _offer(row: Cells, columns: Mapping[str, str], given: Mapping[str, Any]) -> _Offer:
    """Raises GpuNameError and pydantic's ValidationError."""
    texts = {field: text for column, field in columns.items() if (text := _text(row, column))}
    values: dict[str, Any] = {"region": "not stated", **texts, **given}
    if "gpu" not in values:
        raise GpuNameError(WITHOUT["gpu"])
    memory_gb = _text(row, "gpu_memory")
    sizes = (round(float(memory_gb)),) if re.fullmatch(r"\d{1,9}(\.\d*)?", memory_gb) else ()
    values["gpu"] = nvml_name(values["gpu"], sizes or _memories_gb(row.get("GpuInfo"), texts.get("gpus_per_instance")))
    if columns is SKYPILOT:
        if re.fullmatch(r"0*(\.0*)?", texts.get("spot_usd_per_hour", "")):
            values.pop("spot_usd_per_hour", None)
    else:
        values.setdefault("instance", "not stated")
        if _text(row, "spot").lower() in ("true", "1", "yes"):
            values["spot_usd_per_hour"] = values.pop("on_demand_usd_per_hour", None)
    return _Offer.model_validate(values)


def _reason(error: GpuNameError | ValidationError, columns: Mapping[str, str]) -> str:
    if isinstance(error, GpuNameError):
        return str(error)
    problem = error.errors(include_url=False)[0]
    field, said = str(problem["loc"][0]), problem["msg"]
    column = next((name for name, own in columns.items() if own == field), field)
    return WITHOUT.get(field, f"no {column}") if problem["type"] == "missing" else f"{column}: {said}"


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
        table = csv.DictReader(io.StringIO(outside_text(path, MAX_BYTES)), strict=True)
        return [(table.line_num, row) for row in table]
    except OSError as error:
        raise PriceError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, csv.Error) as error:
        raise PriceError(f"{path} is no CSV with a line of column names: {error}") from None


def _text(row: Cells, column: str) -> str:
    """Of a cell; empty where it has no value, which pandas writes as NaN."""
    text = one_line(row.get(column) or "")
    return "" if text.lower() == "nan" else text


def _memories_gb(gpu_info: object, num_gpus: str | None) -> tuple[int, ...]:
    """skypilot-catalog gives the memory in MiB, of one GPU or of all of them; some of its files in GB."""
    sizes = [int(size) for size in re.findall(r"'SizeInMiB': (\d{1,9})(?!\d)", str(gpu_info or ""))[:1]]
    in_gb = {round(size / 1024) if size >= 1024 else size for size in sizes}
    number = max(1, int(float(num_gpus))) if num_gpus and re.fullmatch(r"\d{1,9}(\.\d*)?", num_gpus) else 1
    return tuple(sorted(in_gb | {size // number for size in in_gb}))


def import_summary(imported: ImportedPrices) -> str:
    """ "4 prices of 2 GPUs from 9 rows; 3 left out"."""
    left = sum(skip.count for skip in imported.skipped)
    gpus = count(len({price.gpu for price in imported.prices}), "GPU")
    return f"{count(len(imported.prices), 'price')} of {gpus} from {count(imported.num_rows, 'row')}; {left:,} left out"
