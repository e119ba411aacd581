"""Which cluster the tests of `tests/kube` run on: the E2E_... variables, each in the table of CONTRIBUTING.md."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

NAMESPACE = "trainbench"
BENCH_IMAGE = "trainbench/bench:0.2.0"
ONLY_REAL = ("E2E_NAMESPACE", "E2E_IMAGE", "E2E_NODES")


class E2eError(ValueError):
    """One sentence: which variable is wrong, and what it should be."""


class E2e(NamedTuple):
    """`kubeconfig` None: the stand-in. `nodes` empty: all that take pods. `patience`: how many times longer than usual
    each wait may take."""

    kubeconfig: Path | None = None
    namespace: str = NAMESPACE
    image: str = "test/shell:1"
    nodes: tuple[str, ...] = ()
    patience: float = 1.0


def read_e2e(environ: Mapping[str, str]) -> E2e:
    """Raises E2eError."""
    patience = _patience(environ.get("E2E_PATIENCE", "1"))
    if not environ.get("E2E_KUBECONFIG"):
        if useless := [name for name in ONLY_REAL if environ.get(name)]:
            raise E2eError(f"{', '.join(useless)} is for a real cluster: name its kubeconfig file in E2E_KUBECONFIG")
        return E2e(patience=patience)
    path = Path(environ["E2E_KUBECONFIG"]).expanduser()
    named = [node.strip() for node in environ.get("E2E_NODES", "").split(",")]
    return E2e(
        kubeconfig=path,
        namespace=environ.get("E2E_NAMESPACE") or _namespace_of(path),
        image=environ.get("E2E_IMAGE") or BENCH_IMAGE,
        nodes=tuple(filter(None, named)),
        patience=patience,
    )


def needs(e2e: E2e, instance: str) -> str:
    """What the suite takes of a real cluster, told before it starts."""
    nodes = ", ".join(e2e.nodes) or "the first two that take pods (E2E_NODES names others)"
    return f"""\
The suite runs on the cluster of {e2e.kubeconfig}, namespace {e2e.namespace}, image {e2e.image}.
  nodes: {nodes}; no other node gets a pod
  pods: most of 20m CPU and 32 MiB; tests with a benchmark's own pod (2 CPUs and 8 GiB by the
        shipped LimitRange) are skipped where it does not fit
  rights: those of docker/kubernetes/base, and no other
  cleans up: everything with the label app.kubernetes.io/instance={instance}, and looks at nothing else"""


def _patience(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise E2eError(f"E2E_PATIENCE is '{text}': it must be a number above 0, such as 3 for three times the waits")
    return value


def _namespace_of(path: Path) -> str:
    """Of the kubeconfig's current context."""
    try:
        config: Any = yaml.safe_load(path.read_text())
        context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    except OSError as error:
        raise E2eError(f"E2E_KUBECONFIG is '{path}', which cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, LookupError, TypeError, StopIteration):
        raise E2eError(f"E2E_KUBECONFIG is '{path}', which is no kubeconfig with a current context") from None
    return str(context.get("namespace") or NAMESPACE)


def _or_exit() -> E2e:
    try:
        return read_e2e(os.environ)
    except E2eError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


E2E = _or_exit()
# The label by which the pods of this run of the tests are known: nothing else is ever looked at or deleted.
INSTANCE = f"e2e-{secrets.token_hex(3)}"
IS_REAL = E2E.kubeconfig is not None
