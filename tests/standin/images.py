"""Entries that stand for container images: entry point, environment, and folders of the host (README.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

Object = dict[str, Any]


def python_image(python: Path, *paths: Path, **env: str) -> Object:
    """An image whose `python` is this interpreter; it shows these further paths of the host."""
    prefix, base = python.absolute().parents[1], python.resolve().parents[1]
    return {
        "env": {"PATH": f"{prefix / 'bin'}:/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1", **env},
        "paths": sorted({str(path) for path in (prefix, base, *paths)}),
    }


def scripted_image(folder: Path, script: Path, *paths: Path, **env: str) -> Object:
    """An image whose `python` runs this script with the tests' interpreter, whatever its arguments."""
    image = python_image(Path(sys.executable), folder, script, *paths, **env)
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    wrapper.chmod(0o755)
    image["env"]["PATH"] = f"{folder}:{image['env']['PATH']}"
    return image
