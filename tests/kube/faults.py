"""The faults of tests/kube/faults.toml: what goes wrong, what holds afterwards, and where that is tested."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

FILE = Path(__file__).with_name("faults.toml")
MAX_CAUSE = 600  # characters; a cause is one line


class SickNode(BaseModel):
    """A node of the night on production parts: how it is made, what its pods suffer, and what becomes of it. `why`: of
    its verdict, or `absent` where it is not benchmarked; `cause`: a regular expression that its reason matches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: dict[str, Any] = {}
    faults: tuple[dict[str, Any], ...] = ()
    why: str
    cause: str = ""


class Fault(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    fault: str
    shows: str = "success"
    says: str = "judged"
    left: str = "nothing"
    leaves_pod: bool = False
    tests: tuple[str, ...] = ()
    night: SickNode | None = None

    @property
    def node(self) -> str:
        """Of the night."""
        return f"gpu-{self.name}"


@cache
def faults() -> tuple[Fault, ...]:
    return tuple(Fault(name=name, **row) for name, row in tomllib.loads(FILE.read_text()).items())


def sick_nodes() -> tuple[Fault, ...]:
    return tuple(fault for fault in faults() if fault.night)


def inject(cluster: Any, fault: Fault) -> None:
    """Makes the node of this row in the stand-in, and injects what its pods will suffer."""
    assert fault.night is not None
    cluster.add_node(fault.node, **{"gpus": 1, **fault.night.node})
    name = f"tb-{fault.node}-independent"  # so that no other row's node begins with it
    for values in fault.night.faults:
        target = {"pod": f"^{name}-"} if "action" in values else {}
        cluster.fault(**target, **{key: _named(value, name) for key, value in values.items()})


def table(rows: tuple[Fault, ...]) -> str:
    """The table of docs/internals/kubernetes.md: a line for all faults that end alike."""
    ends: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        says = row.says if row.left == "nothing" else f"{row.says}. Left: {row.left}"
        ends.setdefault((row.shows, says), []).append(row.fault)
    lines = ["| fault | Airflow shows | the report says |", "|---|---|---|"]
    lines += [f"| {'; '.join(faults)} | {' | '.join(end)} |" for end, faults in ends.items()]
    return "\n".join(lines) + "\n"


def _named(value: Any, name: str) -> Any:
    return value.replace("NAME", name) if isinstance(value, str) else value


def one_sentence(text: str) -> Mapping[str, bool]:
    """Each requirement of a cause, and whether `text` meets it."""
    return {
        "not empty": bool(text.strip()),
        "one line": "\n" not in text,
        "short": len(text) <= MAX_CAUSE,
        "no traceback": "Traceback" not in text,
    }
