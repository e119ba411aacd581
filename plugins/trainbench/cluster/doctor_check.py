"""What `doctor` looks at, and the outcome of one check: its state, one sentence, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from bench_image.contract.frozen import Frozen
from trainbench.cluster.kubernetes_api import Cluster
from trainbench.core.formats import sentence
from trainbench.pods.manifests import RENDEZVOUS
from trainbench.settings.environment import Settings

Manifests = Sequence[Mapping[str, Any]]


class CheckState(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Check(Frozen):
    """One check of `doctor`. `resolution` is empty where there is nothing to do."""

    name: str
    state: CheckState
    summary: str
    resolution: str = ""

    @property
    def sentences(self) -> str:
        """How it is, and what to do."""
        advice = self.resolution[:1].upper() + self.resolution[1:]
        return sentence(self.summary) + (f" {sentence(advice)}" if advice else "")


class Site(NamedTuple):
    """The installation. `cluster`: or why it could not be opened; None with the local launcher. `planned`: the pods of
    a plan; without any, a sample pod is tried. `asks_airflow`: the cluster is that of the Airflow connection.
    """

    settings: Settings
    cluster: Cluster | Exception | None
    planned: Manifests = ()
    asks_airflow: bool = False

    @property
    def needs_service(self) -> bool:
        return not self.planned or any(map(is_of_gang, self.planned))


class Examination(NamedTuple):
    """Checks that are made together. `silent`: the check in their place, from the reason for which none was made."""

    checks: Callable[[Site], Iterator[Check]]
    silent: Callable[[Site, str], Check]


def examination(
    silent: Callable[[Site, str], Check],
) -> Callable[[Callable[[Site], Iterator[Check]]], Examination]:
    return lambda checks: Examination(checks, silent)


def is_of_gang(pod: Mapping[str, Any]) -> bool:
    return RENDEZVOUS in pod["metadata"]["labels"]


def ok(name: str, summary: str) -> Check:
    return Check(name=name, state=CheckState.OK, summary=summary)


def warn(name: str, summary: str, resolution: str) -> Check:
    return Check(name=name, state=CheckState.WARN, summary=summary, resolution=resolution)


def fail(name: str, summary: str, resolution: str) -> Check:
    return Check(name=name, state=CheckState.FAIL, summary=summary, resolution=resolution)


def unknown(name: str, summary: str, resolution: str = "") -> Check:
    return Check(name=name, state=CheckState.UNKNOWN, summary=summary, resolution=resolution)
