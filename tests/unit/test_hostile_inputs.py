"""Damaged documents, a fixed number for each reader: every answer is a value or the reader's own error.

Anything else is a finding: a traceback of another kind, a message without end. studies/fuzz_inputs.py gives them a
million.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, redirect_stderr
from datetime import date
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench_image.contract.frozen import ContractError
from bench_image.contract.own_job import SHIPPED, parse_profiles
from bench_image.contract.parse import parse_result, parse_spec
from bench_image.contract.result_lines import ResultLinesError, ResultReader, result_lines
from bench_image.process.exit_codes import RANK_EXITS_FILE, read_exit_codes
from tests.builders.nights import night
from tests.builders.results import make_result
from tests.builders.three_nights import node_of, overview_of, pieces
from tests.unit.exchange.test_foreign_files import BENCH_FILE
from trainbench.exchange.export import ExportError, imported_result
from trainbench.exchange.result_files import ForeignFileError, parse_file
from trainbench.history.database import HistoryError, connect
from trainbench.history.history import History, open_history
from trainbench.judging.levels import LevelsError, parse_levels
from trainbench.pages.reads.comparisons import costs, strategies
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.fleet import heat_map
from trainbench.pages.reads.notices import closed_notices, open_notices
from trainbench.pages.reads.queries import Pages, choices
from trainbench.pages.reads.run_list import runs_csv, runs_page
from trainbench.params.campaign_params import parse_params
from trainbench.params.model_reference import with_configuration
from trainbench.params.refusals import ParamsError
from trainbench.pods.pod_template import PodTemplateError, read_template
from trainbench.prices.price_import import as_toml, import_prices
from trainbench.prices.price_tables import PriceError, load_prices, read_prices
from trainbench.results.artefacts import open_store
from trainbench.results.store_files import StoreError
from trainbench.settings.campaign_file import CampaignFileError, read_campaign_file
from trainbench.settings.environment import PREFIX, SettingsError, read_settings

ROOT = Path(__file__).resolve().parents[2]
INPUTS = {"history": 10, "verdict": 20}  # each of the others, which take less time: 60
SEED = 7
MAX_MESSAGE = 20_000  # characters; an explanation names five fields at most
HUGE = "9" * 4_301  # Python refuses to read or write an integer of so many digits
HOSTILE: Sequence[Any] = (
    None, True, 0, -1, 1.5, 2**63, 2**64, 10**400, -0.0, 1e308, "", "x", "x" * 5_000, "\x00", "\x1b[31m", "\u202e",
    "../../etc", "<script>", "=1+1", "NaN", HUGE, [], [None], {}, {"": None}, [[[[[]]]]], ["x"] * 300,
    {str(i): i for i in range(300)},
)  # fmt: skip
RAW: Sequence[bytes] = (
    b"", b"null", b"NaN", b"{", b"[" * 5_000, b'{"a":' * 3_000, HUGE.encode(), b'{"schema_version": ' + HUGE.encode(),
    b"\xff\xfe", b"\x00" * 64, b'"\\ud800"', b"a,b\n1", b"[[price]]\nusd = " + HUGE.encode(), b"a = " + b"[" * 5_000,
)  # fmt: skip


class Reader(NamedTuple):
    """`document`: one that it takes; `refusals`: the errors that it may answer with."""

    document: bytes
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Reader]:
    return readers(tmp_path_factory.mktemp("hostile"))


def test_every_reader_takes_its_undamaged_document(known: Mapping[str, Reader]) -> None:
    for reader in known.values():
        reader.read(reader.document)


def test_every_answer_to_a_damaged_document_is_a_value_or_a_sentence(known: Mapping[str, Reader]) -> None:
    refused = {name: refusals(name, reader) for name, reader in known.items()}

    assert [name for name, number in refused.items() if not number] == ["exit codes"]


def refusals(name: str, reader: Reader) -> int:
    """How many of its damaged documents the reader refuses. An error of another kind ends the test; `seed` makes its
    input again.
    """
    refused = 0
    for index in range(INPUTS.get(name, 60)):
        seed = f"{SEED} {name} {index}"
        try:
            refused += is_refused(reader, damage(reader.document, random.Random(seed)))
        except Exception as error:
            error.add_note(f"seed {seed!r}")
            raise
    return refused


def is_refused(reader: Reader, document: bytes) -> bool:
    """Whether the reader refuses it, in a message of bounded length. Raises whatever else the reader raises."""
    message = None
    try:
        with redirect_stderr(StringIO()):
            reader.read(document)
    except reader.refusals as refusal:
        message = str(refusal)
    assert len(message or "") <= MAX_MESSAGE
    return message is not None


def damage(document: bytes, draw: random.Random) -> bytes:
    """One to three damages: bytes changed, cut, doubled or lost; a value of the JSON replaced; or something else."""
    if draw.random() < 0.02:
        return draw.choice(RAW)
    for _ in range(draw.randint(1, 3)):
        document = draw.choice((_flip, _cut, _double, _replace, _replace, _replace))(document, draw)
    return document


def _flip(document: bytes, draw: random.Random) -> bytes:
    changed = bytearray(document)
    for _ in range(draw.randint(1, 8) if changed else 0):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _cut(document: bytes, draw: random.Random) -> bytes:
    return document[: draw.randrange(len(document) + 1)]


def _double(document: bytes, draw: random.Random) -> bytes:
    first = draw.randrange(len(document) + 1)
    part = document[first : first + draw.randint(1, 200)]
    return document[:first] + part * draw.randint(2, 50) + document[first:]


def _replace(document: bytes, draw: random.Random) -> bytes:
    """Another value, name or member somewhere in the JSON; bytes changed where it is none."""
    try:
        root = json.loads(document)
    except (ValueError, RecursionError):
        return _flip(document, draw)
    place = root
    while isinstance(place, dict | list) and place:
        key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner) or draw.random() < 0.2:
            _change(place, key, draw)
            break
        place = inner
    try:
        return json.dumps(root).encode(errors="surrogatepass")
    except ValueError:  # an integer too long to be written
        return _flip(document, draw)


def _change(place: Any, key: Any, draw: random.Random) -> None:
    what = draw.random()
    if what < 0.7:
        place[key] = draw.choice(HOSTILE)
    elif what < 0.85:
        del place[key]
    elif isinstance(place, dict):
        place[str(draw.choice(HOSTILE[:20]))[:100]] = place[key]
    else:
        place.extend([place[key]] * draw.randint(1, 200))


def readers(folder: Path) -> Mapping[str, Reader]:
    """Everything that reads what others have written. `folder`: for those that read a file."""
    result = make_result()
    text = result.model_dump_json().encode()
    unreadable = (ForeignFileError, ContractError)
    campaign = night(1, {"node-1": 10.0, "node-2": 9.0})
    store = open_store(str(folder / "store"))
    verdict = Path(store.write_campaign(campaign))
    price = as_toml(load_prices()[:2]).encode()
    columns = b"InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region,GpuInfo"
    offers = columns + b"\np5,H100,8,98.3,40,us-east-1,{}\n"
    channels = b'[{"kind": "mail", "connection": "smtp_default", "to": ["oncall@example.org"]}]'
    params = b'{"model": "tiny", "dimensions": null, "nodes": ["node-1"], "micro_batch_size": "auto", "lora_rank": 8}'
    bench_file = BENCH_FILE.read_bytes()
    template = (ROOT / "docs/examples/pod-templates/infiniband.yaml").read_bytes()
    campaign_file = (  # JSON is YAML, too
        b'{"suite": "node_consistency", "schedule": "0 2 * * 5", "nodes": ["n1", "n2"], '
        b'"job": {"command": "python {gpus}", "environment": {"A": 1}}, "parameters": {"rounds": 2}, '
        b'"channels": [{"kind": "slack", "connection": "slack_gpu"}]}'
    )
    config = json.dumps(
        {
            "model_type": "qwen3",
            "vocab_size": 256,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "layer_types": ["full_attention"] * 2,
        }
    ).encode()
    profiles = SHIPPED.read_bytes()
    levels = b"[[level]]" + (ROOT / "plugins/trainbench/judging/levels.toml").read_bytes().split(b"[[level]]")[1]
    settings = (
        b'{"NAMESPACE": "bench", "NODE_SELECTOR": "pool=gpu,tier!=dev", "WORLD_SIZES": "1,2", "QUARANTINE": "gpu-1", '
        b'"VOLUMES": [{"mount_path": "/data", "source": {"persistentVolumeClaim": {"claimName": "data"}}}]}'
    )
    return {
        "result": Reader(text, parse_result, (ContractError,)),
        "spec": Reader(result.spec.model_dump_json().encode(), parse_spec, (ContractError,)),
        "log of a pod": Reader(
            "\n".join(result_lines(text.decode())).encode(),
            lambda raw: ResultReader(raw.decode(errors="replace").split("\n")).text(),
            (ResultLinesError,),
        ),
        "published result": Reader(text, imported_result, (ExportError, *unreadable)),
        "bench file": Reader(bench_file, parse_file, unreadable),
        "flat result": Reader(
            b'{"strategy": "ddp", "world_size": 2, "rank": 0, "seq_len": 128, "tier": "A", "per_device_batch": 4, '
            b'"grad_accum": 2, "tokens_per_sec": 3.5e4, "peak_vram_gb": 9.5}',
            parse_file,
            unreadable,
        ),
        "verdict": Reader(
            verdict.read_bytes(), _file(verdict, lambda _: store.read_campaign(campaign.campaign_id)), (StoreError,)
        ),
        "params": Reader(params, lambda raw: parse_params(_object(raw)), (ParamsError, _NoObject)),
        "channels": Reader(
            channels, lambda raw: read_settings({f"{PREFIX}NOTIFY": raw.decode(errors="replace")}), (SettingsError,)
        ),
        "price table": Reader(price, _file(folder / "prices.toml", read_prices), (PriceError,)),
        "price catalogue": Reader(
            offers,
            _file(folder / "offers.csv", lambda path: import_prices(path, "x", date(2026, 11, 20), "x")),
            (PriceError,),
        ),
        "levels": Reader(levels, lambda raw: parse_levels(raw.decode(errors="replace"), "levels"), (LevelsError,)),
        "pod template": Reader(template, _file(folder / "template.yaml", read_template), (PodTemplateError,)),
        "campaign file": Reader(campaign_file, _file(folder / "night.yaml", read_campaign_file), (CampaignFileError,)),
        "config.json": Reader(
            config,
            _file(folder / "config.json", lambda path: with_configuration(parse_params({"model": str(path)}))),
            (ParamsError,),
        ),
        "log profiles": Reader(
            profiles, lambda raw: parse_profiles(raw.decode(errors="replace"), "profiles"), (ContractError,)
        ),
        "settings": Reader(settings, _settings, (SettingsError, _NoObject)),
        "exit codes": Reader(
            b'{"0": -9, "1": 1}', _file(folder / RANK_EXITS_FILE, lambda _: read_exit_codes(folder)), ()
        ),
        "history": _history(folder),
    }


def _file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def written(content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    return written


class _NoObject(Exception):
    """The input never reaches the params: Airflow and the command line give an object."""


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        raise _NoObject from None
    if not isinstance(value, dict):
        raise _NoObject
    return value


def _settings(raw: bytes) -> object:
    """An environment: no value of one holds a zero byte, or is anything but a text."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in _object(raw).items()}
    return read_settings({f"{PREFIX}{name}": text.replace("\0", "") for name, text in texts.items()})


def _history(folder: Path) -> Reader:
    """A small SQLite file, and what every page reads of it."""
    whole = folder / "whole.sqlite"
    history = open_history(f"sqlite:///{whole}")
    for day in (1, 2):
        history.record(night(day, {"node-1": 10.0, "node-2": 9.0 + day / 10}))
    with closing(sqlite3.connect(whole)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")  # else a part of it lies in a second file
    suite = night(1, {"node-1": 1.0}).suite

    # One engine for all inputs keeps the compiled SQL; each page opens the file anew.
    read = Pages(connect(f"sqlite:///{folder / 'damaged.sqlite'}"), {suite})

    def pages(_: Path) -> None:
        today = night(2, {"node-1": 1.0}).finished_at.date()
        read.read(choices, Filters())
        overview_of(read, Filters(), today)
        read.read(heat_map, Filters(), today)
        read.read(open_notices, Filters())
        read.read(closed_notices, Filters())
        node_of(read, "node-1", Filters())
        read.read(strategies, Filters())
        read.read(costs, Filters())
        read.read(runs_page, Filters())
        list(pieces(read, runs_csv, Filters()))
        History(read.engine).baselines()

    return Reader(whole.read_bytes(), _file(folder / "damaged.sqlite", pages), (HistoryError,))
