"""What the shell offers for a word that is being typed."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from itertools import pairwise

import typer

BREAKS = frozenset("=:")  # each is a word of its own to bash


def models() -> list[str]:
    from bench_image.contract.model_shapes import MODELS, SAME_SHAPE

    return [*MODELS, *SAME_SHAPE]


def gpus() -> list[str]:
    from bench_image.contract.gpu_specs import GPU_SPECS

    return list(GPU_SPECS)


def parameters(incomplete: str) -> list[str]:
    """NAME= of each parameter; of a single one its values, else its default. Of a list the last value is completed."""
    from trainbench.params.campaign_params import form

    fields = form()
    name, sign, typed = incomplete.partition("=")
    known = [each for each in fields if each == name or (not sign and each.startswith(name))]
    if len(known) != 1:
        return [f"{each}=" for each in known]
    field = fields[known[0]]
    flags = ["true", "false"] if field["type"] == "boolean" else ["", field["default"]]
    before = typed[: typed.rfind(",") + 1] if "array" in field["type"] else ""
    values = field.get("enum") or field.get("examples") or flags
    return [f"{known[0]}={before}{value}" for value in values if value is not None]


def campaigns() -> list[str]:
    from trainbench.results.artefacts import open_store

    return list(open_store().campaign_ids())


@contextmanager
def for_bash() -> Iterator[None]:
    """NAME=VALUE is one word to the completion, though bash hands over three; of its answers bash gets what stands
    behind the last sign, with blanks that do not end the word.
    """
    words = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
    whole: list[str] = []
    for before, word in pairwise(["", *words]):
        is_joined = whole and any(part and BREAKS.issuperset(part) for part in (before, word))
        whole[-1:] = [whole[-1] + word] if is_joined else [*whole[-1:], word]
    os.environ.update(COMP_WORDS="\n".join(whole), COMP_CWORD=str(len(whole) - 1))
    replaced = "" if BREAKS.issuperset(words[-1]) else words[-1]
    told = io.StringIO()
    try:
        with redirect_stdout(told):
            yield
    finally:
        for line in told.getvalue().splitlines():
            typer.echo(re.sub(r"([^\w%+,./:=@-])", r"\\\1", line[len(whole[-1]) - len(replaced) :]))
