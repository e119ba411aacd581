"""The work settings of a campaign: those of `Work`, with the parts that only some recipes or presets use always
present.
"""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from bench_image.contract.model_shapes import MODELS, SAME_SHAPE
from bench_image.contract.setting import setting
from bench_image.contract.work import DataFolder, Lora, Quantisation, Shards, WorkSettings
from trainbench.core.close_matches import did_you_mean
from trainbench.params.form_fields import json_object


class WorkParams(WorkSettings):
    """Work settings of the form, from which `planning.work` makes a run's `Work`. None: by the preset or the model."""

    lora: Lora = Lora()
    lora_targets: Literal["attention", "all"] = setting(
        "attention", "Work", "LoRA targets", "Adapt the attention's linear layers, or all that can be adapted."
    )
    quantisation: Quantisation = Quantisation()
    data_folder: DataFolder | None = setting(
        None,
        "Work",
        "Data folder",
        "Empty: the data is in memory. Else shard files are written to and read from this folder, as the pod sees it.",
    )
    data: Shards = Shards()

    _dimensions = field_validator("dimensions", mode="before")(json_object)

    @model_validator(mode="after")
    def _model_has_dimensions(self) -> WorkParams:
        if self.dimensions is None and self.model not in MODELS:
            known = (*MODELS, *SAME_SHAPE)
            raise ValueError(
                f"model is '{self.model}': not a known model{did_you_mean(self.model, known)}: choose one of "
                f"{', '.join(known)}, or give its dimensions"
            )
        if self.dimensions is not None and self.model in MODELS:
            raise ValueError(f"model '{self.model}' has dimensions of its own: give yours another name")
        return self
