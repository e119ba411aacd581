"""Reads the section `[trainbench]` of Airflow's configuration by Airflow's rules, without importing Airflow.

Only a value that Airflow has to fetch, by a command or from a secrets backend, is asked of Airflow itself.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from trainbench.core.user_error import UserError

SECTION = "trainbench"
ENV = f"AIRFLOW__{SECTION.upper()}__"
FETCHED = ("_cmd", "_secret")  # suffixes of options that say how Airflow gets the value of a sensitive option
SENSITIVE = frozenset({"history_url", "notify"})  # a password, and addresses that are tokens


class SectionError(UserError, ValueError):
    """Airflow's configuration cannot be read, or cannot give a value."""


class Given(NamedTuple):
    """`text`: None: Airflow has to fetch it. `where`: the name of a variable, or the option and its file."""

    text: str | None
    where: str


def options_given(environ: Mapping[str, str] = os.environ) -> dict[str, Given]:
    """Option -> what is given for it: by Airflow's variables, else by its file. An empty text counts as none. Raises
    SectionError.
    """
    path = _config_file(environ)
    variables = {name: text for name, text in environ.items() if name.upper().startswith(ENV)}
    places = [
        *((name.upper().removeprefix(ENV).lower(), _expanded(text), name) for name, text in variables.items()),
        *((name, text, f"{name} in [{SECTION}] of {path}") for name, text in _section(path).items()),
    ]
    found: dict[str, Given] = {}
    for of_file in (False, True):
        here = [place for place in places if place[1] and (place[2] not in variables) is of_file]
        for option, text, where in sorted(here, key=lambda place: _base(place[0]) != place[0]):  # the value first
            base = _base(option)
            found.setdefault(base, Given(text if base == option else None, where))
    return found


def fetched(option: str, where: str) -> str:
    """The value of a sensitive option as Airflow fetches it. Raises SectionError."""
    try:
        from airflow.configuration import conf

        text = conf.get(SECTION, option, fallback=None)
    except ImportError:
        raise SectionError(f"{where} needs Airflow, which this Python lacks: set {ENV}{option.upper()}") from None
    except Exception as error:  # of the command, or of any secrets backend
        raise SectionError(f"{where} gives no value: {error}") from None
    if not text:
        raise SectionError(
            f"{where} gives no value: the command or the secret must have one, and trainbench be installed as a package"
        )
    return str(text).strip()


def _base(option: str) -> str:
    """The sensitive option of which this one says how Airflow fetches it; else the option itself."""
    bases = (option.removesuffix(suffix) for suffix in FETCHED)
    return next((base for base in bases if base != option and base in SENSITIVE), option)


def _config_file(environ: Mapping[str, str]) -> str:
    home = environ.get("AIRFLOW_HOME", "~/airflow")
    return _expanded(environ.get("AIRFLOW_CONFIG") or os.path.join(home, "airflow.cfg"))  # noqa: PTH118 - as Airflow


def _section(path: str) -> Mapping[str, str]:
    try:
        stat = os.stat(path)  # noqa: PTH116
    except OSError:  # there is none
        return {}
    return _parsed(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)
def _parsed(path: str, _changed_ns: int, _num_bytes: int) -> Mapping[str, str]:
    """The section's options. A page reads settings at each request, so the file is read once after each change."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
        if f"[{SECTION}]" not in text:
            return {}
        parser = configparser.ConfigParser()
        parser.read_string(text, path)
        if not parser.has_section(SECTION):  # in a comment
            return {}
        return {name: _expanded(value) for name, value in parser.items(SECTION) if name not in parser.defaults()}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise SectionError(f"{path} cannot be read: {' '.join(str(error).split())}; a % is written %%") from None


def _expanded(text: str) -> str:
    """With `~` and variables replaced, as Airflow does."""
    while (expanded := os.path.expanduser(os.path.expandvars(text))) != text:  # noqa: PTH111
        text = expanded
    return text
