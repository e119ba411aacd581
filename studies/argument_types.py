"""Types of the studies' arguments: a wrong path is one sentence, before anything is measured."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

from bench_image.contract.parse import parse_spec


def spec_file(text: str) -> Path:
    """The path of a valid run spec."""
    try:
        parse_spec(Path(text).read_text())
    except OSError as error:
        raise ArgumentTypeError(f"{text} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ArgumentTypeError(f"{text}: {error}") from None
    return Path(text)


def output_file(text: str) -> Path:
    """The path of a file to write; its folder is made."""
    path = Path(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentTypeError(f"{text} cannot be written: {error.strerror}") from None
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder: name a file")
    return path
