"""Translates GPU names of price catalogues into the words of NVML, which the price table uses."""

from __future__ import annotations

import re
from collections.abc import Collection

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
        words.insert(1, f"{_one_memory(family, memories_gb)}GB")
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


def _one_memory(family: str, memories_gb: Collection[int]) -> int:
    """A bare name stands for the smaller memory, as is the custom; a stated memory must match one of them."""
    fitting = set(TWO_MEMORIES[family]) & set(memories_gb)
    if len(fitting) == 1:
        return fitting.pop()
    if memories_gb:
        small, large = TWO_MEMORIES[family]
        raise GpuNameError(f"{family} with {small} or {large} GB: the file does not say which")
    return TWO_MEMORIES[family][0]
