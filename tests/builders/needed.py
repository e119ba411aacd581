"""What some tests need beyond the Python packages: skipped without it in one sentence, but never where CI=true."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def missing(sentence: str) -> NoReturn:
    """Skip the test; where the tests count (CI) it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)


def program(name: str, package: str) -> str:
    """Path of a program that a Debian package holds."""
    return shutil.which(name) or missing(f"install the package {package}")
