"""Reads checkpoints in safetensors, from a folder or the hub, one tensor at a time onto the device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter

from bench_image.contract.decoder_config import decoder_config
from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import IN_TRANSFORMERS, ConfiguredShape, EncoderDecoderShape, ModelShape
from bench_image.contract.spec import RunSpec
from bench_image.contract.weights import hub_id
from bench_image.model.init_weights import WeightSource

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# Checkpoints of a bare transformer lack the prefix under which the language model holds it.
PREFIXES = ("", "transformer.", "model.")


class Checkpoint(NamedTuple):
    """An opened checkpoint. `files`: tensor name -> name of the file that holds it."""

    folder: Path
    config: Any
    files: dict[str, str]

    def values(self, otherwise: WeightSource) -> WeightSource:
        """A source of the checkpoint's tensors; LoRA adapters, which a base checkpoint lacks, come from `otherwise`.

        The source raises ContractError for a tensor that is absent or has another shape.
        """

        from safetensors import safe_open

        def read(bare: str, like: torch.Tensor, device: torch.device) -> torch.Tensor:
            if "lora_" in bare:
                return otherwise(bare, like, device)
            if bare == "lm_head.weight" and self.config.tie_word_embeddings:
                return torch.empty(like.shape, dtype=like.dtype, device=device)  # tied to the embedding later
            names = (bare.removeprefix(prefix) for prefix in PREFIXES if bare.startswith(prefix))
            name = next((name for name in names if name in self.files), None)
            if name is None:
                raise ContractError(
                    f"weights '{self.folder}' hold no tensor '{bare}': is it a checkpoint of this model?"
                )
            with safe_open(self.folder / self.files[name], framework="pt", device=str(device)) as file:
                tensor: torch.Tensor = file.get_tensor(name)
            if tensor.shape != like.shape:
                raise ContractError(
                    f"weights '{self.folder}': {bare} has shape {tuple(tensor.shape)}, the model {tuple(like.shape)}"
                )
            return tensor.to(like.dtype)

        return read


def open_checkpoint(spec: RunSpec) -> Checkpoint:
    """Opens the checkpoint of `spec.weights`. Raises ContractError if it is absent, incomplete or of another model."""
    from transformers import AutoConfig

    shape = spec.work.shape
    if shape.is_mixture or isinstance(shape, EncoderDecoderShape):
        raise ContractError(
            f"weights '{spec.work.weights}' for a model of family '{shape.kind}': its checkpoints store the "
            "weights in another layout; choose weights 'random'"
        )
    folder = downloaded(spec.work.weights) if spec.work.needs_hub else Path(spec.work.weights)
    if not folder.is_dir():
        raise ContractError(f"weights '{folder}': there is no such folder; mount it, or choose weights 'random'")
    auto: Any = AutoConfig
    config = auto.from_pretrained(folder)
    _check_shape(config, shape, spec)
    config.use_cache = False
    if hasattr(config, "sliding_window") and not isinstance(shape, ConfiguredShape):
        config.sliding_window = None
    return Checkpoint(folder, config, files_of(folder))


def downloaded(weights: str) -> Path:
    """The folder of a model of the hub. Raises ContractError."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repository, revision = hub_id(weights)
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=["*.json", "*.safetensors"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ContractError(
            f"weights '{weights}' cannot be downloaded from the hub ({type(error).__name__}): mount a folder and give "
            "its path, beginning with / or ., set HF_TOKEN for a gated model, or choose weights 'random'"
        ) from error


def files_of(folder: Path) -> dict[str, str]:
    """Tensor -> safetensors file of the folder. Raises ContractError, also for a name that leaves the folder."""
    if (index := folder / INDEX).exists():
        try:
            files = TypeAdapter(dict[str, str]).validate_python(json.loads(index.read_bytes())["weight_map"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            message = f"weights '{index}' are no index of safetensors files: {type(error).__name__}"
            raise ContractError(message) from None
        foreign = [name for name in files.values() if Path(name).name != name or name in ("", ".", "..")]
        if foreign:
            raise ContractError(f"weights '{index}' name {foreign[0]!r:.120}: only files beside the index are read")
        return files
    if not (folder / SINGLE).exists():
        raise ContractError(f"weights '{folder}' hold neither {INDEX} nor {SINGLE}: only safetensors are read")
    from safetensors import safe_open

    with safe_open(folder / SINGLE, framework="pt") as file:
        return dict.fromkeys(file.keys(), SINGLE)


def _check_shape(config: Any, shape: ModelShape, spec: RunSpec) -> None:
    """Raises ContractError unless the checkpoint has exactly that shape, from which speed and memory are computed."""
    if isinstance(shape, ConfiguredShape):
        if shape.config != decoder_config(config.to_dict()):
            raise ContractError(
                f"weights '{spec.work.weights}' do not fit model '{spec.work.model}': choose as model the config.json "
                "beside them"
            )
        return
    names = {ours: name for ours, name in IN_TRANSFORMERS.items() if ours != "max_positions" and hasattr(shape, ours)}
    pairs = {ours: (getattr(config, name, None), getattr(shape, ours)) for ours, name in names.items()}
    pairs |= {"family": (config.model_type, shape.family)}
    wrong = [f"{name} {theirs} (model: {ours})" for name, (theirs, ours) in pairs.items() if theirs != ours]
    if wrong:
        raise ContractError(
            f"weights '{spec.work.weights}' do not fit model '{spec.work.model}': {', '.join(wrong)}; choose their "
            "model, or give their `dimensions`"
        )
