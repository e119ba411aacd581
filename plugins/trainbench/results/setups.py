"""The setup of a run: versions of driver, image, kernel, VBIOS and libraries, power limit, pod template and GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench_image.contract.frozen import Frozen
from bench_image.contract.result_sections import Context


class Setup(Frozen):
    """The setup of a run. None: not recorded; that is never a change."""

    driver: str | None = None
    image: str | None = None
    kernel: str | None = None
    vbios: str | None = None
    power_limit_w: float | None = None  # the lowest of the GPUs'
    libraries: Mapping[str, str] | None = None  # torch is one of them
    gpu_uuids: frozenset[str] = frozenset()
    pod_template: str | None = None  # its digest; "none": without one


def setup_of(context: Context | None) -> Setup:
    if context is None:
        return Setup()
    limits = [gpu.power_limit_w for gpu in context.gpus if gpu.power_limit_w is not None]
    return Setup(
        driver=context.driver,
        image=context.image,
        kernel=context.kernel,
        vbios=" + ".join(sorted({gpu.vbios for gpu in context.gpus if gpu.vbios})) or None,
        power_limit_w=min(limits, default=None),
        libraries=context.libraries,
        gpu_uuids=frozenset(gpu.uuid for gpu in context.gpus if gpu.uuid),
        pod_template=context.pod_template,
    )


def versions(setup: Setup) -> dict[str, str]:
    """Name -> value of each known version and limit, without the GPUs' UUIDs."""
    own: dict[str, str | None] = {
        "driver": setup.driver,
        "image": setup.image,
        "kernel": setup.kernel,
        "VBIOS": setup.vbios,
        "power limit": None if setup.power_limit_w is None else f"{setup.power_limit_w:g} W",
        "pod template": setup.pod_template,
    }
    return {name: value for name, value in own.items() if value is not None} | dict(setup.libraries or {})


def change_phrases(before: Sequence[Setup], after: Setup) -> tuple[str, ...]:
    """Phrases on the changes: "the driver went from 575.1 to 580.95". `before`: newest last; of each item the last
    recorded value counts, so that a run without it hides no change.
    """
    known: dict[str, str] = {}
    for setup in before:
        known |= versions(setup)
    now = versions(after)
    return tuple(
        f"{_the(name)} went from {was} to {now[name]}" for name, was in known.items() if now.get(name, was) != was
    )


def _the(name: str) -> str:
    return f"the {name}" if name in ("driver", "image", "kernel", "VBIOS", "power limit", "pod template") else name
