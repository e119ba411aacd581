"""`model` as the path of a config.json or an id of the hub: what is read, and each refusal as one sentence."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.model_shapes import ConfiguredShape
from trainbench.params.campaign_params import parse_params
from trainbench.params.model_reference import with_configuration
from trainbench.params.refusals import ParamsError

MINE: dict[str, Any] = {
    "model_type": "qwen3", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
}  # fmt: skip
LLAMA_3_1_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128_256, "hidden_size": 4096,
    "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 131_072, "rope_theta": 500_000.0, "torch_dtype": "bfloat16",
}  # fmt: skip
REVISION = "b968826d9c46dd6066d109eabc6255188de91218"


@pytest.fixture
def hub() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A hub that has one model and one that needs a token; and each request's path and token."""
    asked: list[tuple[str, str | None]] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = self.headers.get("Authorization")
            asked.append((self.path, token))
            status = 404 if "absent" in self.path else 401 if "gated" in self.path and not token else 200
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(MINE).encode() if status == 200 else b"no")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def read(model: str, environ: dict[str, str] | None = None, **values: Any) -> Any:
    return with_configuration(parse_params({"model": model, "recipe": "full"} | values), environ or {})


def written(folder: Path, config: object) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_a_file_gives_the_dimensions_under_the_name_of_its_folder(tmp_path: Path) -> None:
    folder = written(tmp_path / "My Qwen", MINE)
    by_folder, by_file = read(folder), read(f"{folder}/config.json")

    assert by_folder == by_file
    assert by_folder.work.model == "My-Qwen"
    assert isinstance(by_folder.work.shape, ConfiguredShape)
    assert by_folder.work.shape.hidden_size == 64
    assert with_configuration(by_folder) == by_folder
    assert read(written(tmp_path / "qwen3-8b", MINE)).work.model == "qwen3-8b-custom"


def test_a_known_configuration_is_the_known_model(tmp_path: Path) -> None:
    work = read(written(tmp_path / "any", LLAMA_3_1_8B)).work

    assert (work.model, work.dimensions) == ("llama-3.1-8b", None)


def test_a_configuration_of_ones_own_may_have_another_model(tmp_path: Path) -> None:
    variants = {"mine": {"model": written(tmp_path / "mine", MINE)}, "rank 64": {"lora_rank": 64}}
    own = read("tiny", own_variants=variants).own_variants

    assert own["mine"]["model"] == "mine"
    assert own["mine"]["dimensions"]["config"]["hidden_size"] == 64
    assert own["rank 64"] == variants["rank 64"]


def test_a_model_of_the_hub_is_read_once_by_its_revision(hub: tuple[str, list[tuple[str, str | None]]]) -> None:
    url, asked = hub
    work = read(f"gated/Mine@{REVISION}", {"HF_ENDPOINT": url, "HF_TOKEN": "secret"}).work

    assert (work.model, work.shape.hidden_size) == ("Mine", 64)
    assert asked == [(f"/gated/Mine/resolve/{REVISION}/config.json", "Bearer secret")]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (f"org/absent@{REVISION}", "answers 404: look at the name and the revision"),
        (f"org/gated@{REVISION}", "needs a token: set HF_TOKEN"),
        ("org/mine@main", "needs a revision that does not move"),
        ("org/../../mine@x", "needs a revision that does not move"),
    ],
)
def test_what_the_hub_does_not_give(hub: tuple[str, Any], model: str, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        read(model, {"HF_ENDPOINT": hub[0]})


def test_a_hub_out_of_reach_is_named() -> None:
    with pytest.raises(ParamsError, match=r"http://127\.0\.0\.1:9 cannot be reached .* give the path"):
        read(f"org/mine@{REVISION}", {"HF_ENDPOINT": "http://127.0.0.1:9"})
    with pytest.raises(ParamsError, match=r"HF_ENDPOINT is 'file:///etc': give a URL"):
        read(f"org/mine@{REVISION}", {"HF_ENDPOINT": "file:///etc"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"not json", "it is no JSON"),
        (b"", "it is no JSON"),
        (b"\xff\xfe", "can't decode"),
        (b"[" * 50_000, "nested too deep"),
        (b" " * 70_000, "more than 65,536 bytes"),
        (b'{"model_type": "qwen3"}', "it has no vocab_size"),
        (b'{"model_type": "bert", "architectures": ["BertModel"]}', "is no decoder"),
        (json.dumps(MINE | {"num_hidden_layers": 10**9}).encode(), "num_hidden_layers is 1000000000"),
    ],
)
def test_a_file_that_is_no_model_is_one_sentence(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(ParamsError, match=message) as refusal:
        read(str(tmp_path))
    assert str(refusal.value).startswith(f"model is '{tmp_path}': ")
    assert "\n" not in str(refusal.value)


def test_a_path_that_is_no_file_may_be_meant_for_the_hub(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"revision, Qwen/Qwen3-8B@ and the commit hash .*'qwen3-8b'"):
        read("Qwen/Qwen3-8B")
    for odd in ("/" + 700 * "a", "~nobody-here/config.json"):
        with pytest.raises(ParamsError, match="give the path of a"):
            read(odd)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ParamsError, match="neither a file nor a folder"):
        read(str(tmp_path / "pipe.json"))
    with pytest.raises(ParamsError, match=r"that of Airflow's workers"):
        read(str(tmp_path / "none.json"))


def test_a_reference_leaves_no_room_for_dimensions() -> None:
    with pytest.raises(ParamsError, match=r"has a config\.json: leave its dimensions empty"):
        parse_params({"model": "/models/mine", "dimensions": {"family": "config", "config": MINE}})
