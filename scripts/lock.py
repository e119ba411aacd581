"""Writes requirements/*.txt anew: fresh environments from pyproject.toml's extras, then what pip put there.

requirements/image-source.txt is written by hand: one package, built against the torch of image.txt.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = "# Exact versions, known to work together on Python 3.11 to 3.13; `make lock` writes this file anew.\n"
FILES = {
    "control": ("control", "control,dev", "dev"),
    "image": ("image", "image", "image-dev"),
}
TORCH_NOTE = "# torch: the CPU build where the package index offers one, else the CUDA build.\n"


def main() -> None:
    for base, (extras, dev_extras, dev_name) in FILES.items():
        # setuptools and wheel, which freeze leaves out, are needed to build what comes from source.
        flags = [] if base == "control" else ["--all", "--exclude", "pip"]
        pins = frozen(f"{ROOT}[{extras}]", flags=flags)
        tools = [] if base == "control" else ["pytest", "pytest-timeout", "types-psutil"]
        more = frozen(f"{ROOT}[{dev_extras}]", *tools, flags=flags)
        note = TORCH_NOTE if base == "image" else ""
        write(base, HEAD + note, pins)
        write(dev_name, HEAD + f"-r {base}.txt\n", [pin for pin in more if pin not in pins])


def frozen(*packages: str, flags: Sequence[str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        listed = subprocess.run(
            [python, "-m", "pip", "freeze", "--exclude", "trainbench", *flags], check=True, capture_output=True
        )
    # A local build is named torch==2.13.0+cpu: the tag would tie the file to one index.
    return [line.split("+")[0] for line in listed.stdout.decode().splitlines()]


def write(name: str, head: str, pins: list[str]) -> None:
    path = ROOT / "requirements" / f"{name}.txt"
    path.write_text(head + "\n".join(pins) + "\n")
    print(f"{path.relative_to(ROOT)}: {len(pins)} packages")


if __name__ == "__main__":
    main()
