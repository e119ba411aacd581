"""Reads the `config.json` that the parameter `model` refers to: a file that this process sees, or a model of the hub.

The pod gets its content: neither the file nor the hub need be in its reach. Nothing else of a model is read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from bench_image.contract.decoder_config import MOST_BYTES
from bench_image.contract.model_shapes import MODELS, shape_of_config
from bench_image.contract.weights import BRANCHES, HUB_ID
from bench_image.contract.work import is_reference
from trainbench.core.close_matches import did_you_mean
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.params.refusals import ParamsError

HUB = "https://huggingface.co"
HUB_ENV, TOKEN_ENV = "HF_ENDPOINT", "HF_TOKEN"  # as the hub's own programs read them
HUB_TIMEOUT_S = 20
LONGEST_NAME = 56  # room for what tells it from a known one


def with_configuration(params: BenchmarkParams, environ: Mapping[str, str] = os.environ) -> BenchmarkParams:
    """The parameters with the dimensions that their models refer to. Raises ParamsError."""
    changes: dict[str, Any] = {}
    if is_reference(params.work.model):
        changes |= _read(params.work.model, environ)
    variants = {
        name: {**variant, **_read(variant["model"], environ)}
        for name, variant in params.own_variants.items()
        if is_reference(variant.get("model"))
    }
    if variants:
        changes["own_variants"] = {**params.own_variants, **variants}
    return params.changed(**changes) if changes else params


def _read(reference: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Model and dimensions of a reference: a name of ours where its work is the same."""
    try:
        text = _of_hub(reference, environ) if "@" in reference else _of_file(reference)
        shape = shape_of_config(json.loads(text))
    except RecursionError:
        raise ParamsError(f"model is '{reference}': it is nested too deep for a config.json") from None
    except json.JSONDecodeError as error:
        raise ParamsError(f"model is '{reference}': it is no JSON ({error.msg} in line {error.lineno})") from None
    except ValueError as error:
        raise ParamsError(f"model is '{reference}': {error}") from None
    if known := next((name for name, own in MODELS.items() if own == shape), None):
        return {"model": known, "dimensions": None}
    return {"model": _name(reference), "dimensions": shape.model_dump(mode="json")}


def _of_file(path: str) -> str:
    """Raises ValueError."""
    try:
        file = Path(path).expanduser()
        file = file / "config.json" if file.is_dir() else file
        if file.exists() and not file.is_file():  # a pipe would be waited for
            raise ValueError("it is neither a file nor a folder")
        with file.open("rb") as opened:
            text = opened.read(MOST_BYTES + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: the home of an unknown user
        raise ValueError(f"{getattr(error, 'strerror', None) or 'it cannot be read'}{_hint(path)}") from None
    return _decoded(text)


def _hint(path: str) -> str:
    """What else the user may have meant by a path that is no file."""
    name = path.rsplit("/", 1)[-1]
    if path.count("/") == 1 and not path.startswith((".", "/", "~")):
        close = did_you_mean(name.lower(), MODELS)
        return f"; a model of the hub needs its revision, {path}@ and the commit hash{close}"
    return "; give the path of a config.json that this machine sees: on a cluster that of Airflow's workers"


def _of_hub(reference: str, environ: Mapping[str, str]) -> str:
    """Raises ValueError."""
    match = HUB_ID.fullmatch(reference)
    if match is None or match["revision"] in BRANCHES:
        raise ValueError(
            "a model of the hub needs a revision that does not move: write name@ and the commit hash that the hub "
            "shows under 'Files and versions'"
        )
    hub = environ.get(HUB_ENV) or HUB
    if not hub.startswith(("http://", "https://")):
        raise ValueError(f"{HUB_ENV} is '{hub}': give a URL that begins with https://")
    request = Request(f"{hub.rstrip('/')}/{match['repository']}/resolve/{match['revision']}/config.json")  # noqa: S310 - http by the check
    if token := environ.get(TOKEN_ENV):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=HUB_TIMEOUT_S) as answer:  # noqa: S310
            return _decoded(answer.read(MOST_BYTES + 1))
    except HTTPError as error:
        why = {401: f"needs a token: set {TOKEN_ENV}", 403: f"does not allow it to this {TOKEN_ENV}"}
        said = why.get(error.code, f"answers {error.code}: look at the name and the revision")
        raise ValueError(f"{hub} {said}") from None
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(f"{hub} cannot be reached ({reason}): give the path of its config.json") from None


def _decoded(text: bytes) -> str:
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes: a model's config.json is smaller")
    return text.decode()


def _name(reference: str) -> str:
    """A name for a model without one: that of the hub, or of the file's folder."""
    parts = reference.split("@")[0].rstrip("/").removesuffix("/config.json").removesuffix(".json").split("/")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", parts[-1]).strip("-._")[:LONGEST_NAME] or "model"
    return f"{name}-custom" if name.lower() in MODELS else name
