"""Writes the requirement files anew: every package that pyproject.toml's extras need, with the hashes of all its files.

uv resolves from PyPI for Python 3.11 to 3.13 and all platforms at once. A version that a file names stays as long as it
fits: delete its lines, or the file, to take a newer one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
UV = "uv==0.13.9"
OLDEST_PYTHON = "3.11"
HEAD = (
    "# Versions and hashes for Python 3.11 to 3.13: pip install --require-hashes; `make lock` writes this file anew.\n"
)
PIN = re.compile(r"^[^\s#-].*(?:\n    --hash=.*)*", re.MULTILINE)  # a package and its hashes
SOURCE_ONLY = "deepspeed"
OF_CUDA = re.compile(r"(torch|triton|cuda-[^=]*|nvidia-(?!ml-py)[^=]*)==")
NOT_IN_IMAGE = re.compile(rf"{OF_CUDA.pattern}|{SOURCE_ONLY}==")


class Lock(NamedTuple):
    """A file: packages of the project's `extras` and `more`, without those of the file `base` and those whose name does
    not match (`only`) or matches (`never`)."""

    name: str
    note: str = ""
    extras: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    base: str = ""
    only: re.Pattern[str] = re.compile("")
    never: re.Pattern[str] = re.compile("$")
    flags: tuple[str, ...] = ()


LOCKS = (
    Lock("requirements/control.txt", extras=("control",)),
    Lock("requirements/dev.txt", "-r control.txt\n", ("control", "dev"), base="requirements/control.txt"),
    Lock(
        "docker/airflow/requirements.txt",
        "# What the Airflow image needs for PostgreSQL beyond requirements/control.txt.\n",
        ("control",),
        ("asyncpg", "psycopg[binary]"),
        base="requirements/control.txt",
    ),
    Lock("requirements/image.txt", extras=("image",), never=NOT_IN_IMAGE),
    Lock(
        "requirements/image-cuda.txt",
        "# torch as PyPI has it and the CUDA packages that it needs: with image.txt, the bench image. An environment\n"
        "# for the CPU takes this version of torch from whatever index it has, without a hash (scripts/setup.py).\n",
        ("image",),
        only=OF_CUDA,
    ),
    Lock(
        "requirements/image-dev.txt",
        "-r image.txt\n",
        ("image",),
        ("pytest", "pytest-timeout", "types-psutil"),
        base="requirements/image.txt",
        never=NOT_IN_IMAGE,
    ),
    Lock(
        "requirements/image-source.txt",
        "# Published as source only, built against the installed torch without isolation and without its operators:\n"
        "#   DS_BUILD_OPS=0 pip install --require-hashes --no-deps --no-build-isolation -r image-source.txt\n",
        more=(SOURCE_ONLY,),
        flags=("--no-deps",),
    ),
    Lock(
        "requirements/mutation.txt",
        "# Makes mutants for studies/mutation_study.py, in an environment of its own: nothing else needs it.\n",
        more=("cosmic-ray",),
    ),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "--quiet", UV], check=True)
        for lock in LOCKS:
            family = [other.name for other in LOCKS if other.extras[:1] == lock.extras[:1]]
            known = [pin for name in family for pin in pins_of(name)]
            write(lock, resolved(lock, known, Path(folder)))


def pins_of(name: str) -> list[str]:
    return PIN.findall((ROOT / name).read_text()) if (ROOT / name).exists() else []


def resolved(lock: Lock, known: list[str], folder: Path) -> list[str]:
    """Every package of the lock, with those of its base; of the versions in `known`, those that fit."""
    output = folder / "locked.txt"
    output.write_text("\n".join(known) + "\n")
    sources = [*(["pyproject.toml"] if lock.extras else []), *(["-"] if lock.more else [])]
    command = [f"{folder}/bin/uv", "pip", "compile", *sources, f"--output-file={output}", "--quiet", *lock.flags]
    command += [f"--extra={extra}" for extra in lock.extras]
    command += ["--generate-hashes", "--universal", f"--python-version={OLDEST_PYTHON}", "--no-annotate", "--no-header"]
    subprocess.run(command, input="\n".join(lock.more).encode(), check=True, cwd=ROOT)
    return PIN.findall(output.read_text())


def write(lock: Lock, pins: list[str]) -> None:
    base = pins_of(lock.base) if lock.base else []
    chosen = [pin for pin in pins if pin not in base and lock.only.match(pin) and not lock.never.match(pin)]
    (ROOT / lock.name).write_text(HEAD + lock.note + "\n".join(chosen) + "\n")
    print(f"{lock.name}: {len(chosen)} packages")


if __name__ == "__main__":
    main()
