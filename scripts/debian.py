"""Debian packages that tests need: `.ci/run` installs them as root, nothing else does."""

from __future__ import annotations

import os
import shutil
import subprocess


class NoPackage(RuntimeError):
    """One sentence: what is missing and what to do."""


def install(package: str) -> None:
    """By apt-get, as root, where CI=true, which `.ci/run` sets. Raises NoPackage."""
    if os.environ.get("CI") != "true" or os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NoPackage(f"install the package {package}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    lock = ["-o", "DPkg::Lock::Timeout=300"]  # two suites of `make test` may install at once
    for command in (["update"], ["install", "--yes", "--no-install-recommends", package]):
        done = subprocess.run(["apt-get", "-qq", *lock, *command], env=environment, capture_output=True, text=True)  # noqa: S607
        if done.returncode != 0:
            line = (done.stderr.strip().splitlines() or ["it printed no message"])[-1]
            raise NoPackage(f"`apt-get {' '.join(command)}` failed: {line}")
