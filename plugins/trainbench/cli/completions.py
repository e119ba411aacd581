"""What the shell offers for a word that is being typed."""

from __future__ import annotations


def models() -> list[str]:
    from bench_image.contract.model_shapes import MODELS, SAME_SHAPE

    return [*MODELS, *SAME_SHAPE]


def gpus() -> list[str]:
    from bench_image.contract.gpu_specs import GPU_SPECS

    return list(GPU_SPECS)


def parameters(incomplete: str) -> list[str]:
    """NAME= of each parameter, and behind the sign the values of one that has a list of them."""
    from trainbench.params.campaign_params import form

    fields = form()
    name, sign, _ = incomplete.partition("=")
    if not sign:
        return [f"{each}=" for each in fields]
    field = fields.get(name, {})
    flags = ["true", "false"] if field.get("type") == "boolean" else []
    return [f"{name}={value}" for value in field.get("enum") or field.get("examples") or flags if value is not None]


def campaigns() -> list[str]:
    from trainbench.results.artefacts import open_store

    return list(open_store().campaign_ids())
