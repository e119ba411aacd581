"""A training command on the command line or in a campaign file: what it is told of, as parameters."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_image.contract.frozen import ContractError
from bench_image.contract.own_job import AUTO_PROFILE, choose_profiles, parse_profiles
from bench_image.contract.work import Device
from trainbench.cli import base
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from trainbench.settings.campaign_file import CampaignFile

MAX_FILE_BYTES = 16_000_000  # of a script or a configuration; data and weights are larger


def job_values(
    command: Sequence[str] | None,
    environment: Sequence[str] | None,
    profile: str | None,
    log_profiles: Path | None,
    campaign: CampaignFile | None = None,
) -> dict[str, Any]:
    """Parameter -> value: those of the campaign file, and from the words after `--` and the options that belong to
    them, which replace those of its job.

    `log_profiles`: the installation's own file. Raises UserError.
    """
    values = dict(campaign.values) if campaign else {}
    words = command or shlex.split(values.get("command") or "")
    if not words:
        for option, value in (("--env", environment), ("--profile", profile)):
            if value:
                raise UserError(
                    f"{option} belongs to a command of yours: write it after '--', such as -- python train.py"
                )
        return values
    if command:
        values = {name: value for name, value in values.items() if name not in ("job_version", "job_folder")}
    name = profile or values.get("log_profile") or AUTO_PROFILE
    try:
        text = base.read_file(log_profiles, MAX_FILE_BYTES).decode(errors="replace") if log_profiles else None
        choose_profiles(name, parse_profiles(text, str(log_profiles)) if text else ())
    except ContractError as error:
        raise UserError(str(error)) from None
    folder = Path(values.get("job_folder") or Path.cwd())
    variables = base.named_values(values.get("job_environment"))
    variables |= base.named_values(environment, "--env", "NCCL_DEBUG=INFO")
    return values | {
        "command": shlex.join(words),
        "job_environment": [f"{name}={value}" for name, value in variables.items()],
        "job_version": values.get("job_version") or version_of(words, folder),
        "job_folder": str(folder),
        "log_profile": name,
    }


def version_of(command: Sequence[str], folder: Path) -> str | None:
    """A checksum of the files that the command names, modules by `-m` among them; None for none. The program itself
    counts where it lies in this folder.
    """
    names: list[str] = []
    is_ours = (folder / command[0]).resolve().is_relative_to(folder.resolve())
    for before, word in pairwise(("", *command) if is_ours else command):
        module = word.replace(".", "/")
        names += [f"{module}.py", f"{module}/__main__.py"] if before == "-m" else [word, word.partition("=")[2]]
    files = {}
    for name in filter(None, names):
        path = folder / name
        try:
            if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
                files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        except (OSError, ValueError):  # no path, or none of ours
            continue
    if not files:
        return None
    digest = hashlib.sha256("".join(f"{name} {files[name]}\n" for name in sorted(files)).encode()).hexdigest()
    return f"{digest[:12]} of {', '.join(sorted(files))}"[:200]


def device_of(values: dict[str, Any], device: Device | None) -> Device | None:
    """The chosen one, else that of the file; a command of the user's own takes the machine's GPUs, where it has any."""
    from trainbench.cluster.local_nodes import visible_gpus

    if device or "command" not in values or "device" in values:
        return device
    return Device.CUDA if visible_gpus() else Device.CPU
