"""The cluster as tests see it, whether the stand-in or a real one."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Object = dict[str, Any]


class Handle(ABC):
    """`patience`: every wait may take this many times longer."""

    simulated: bool
    namespace: str
    kubeconfig: Path
    patience: float = 1.0

    @abstractmethod
    def pods(self) -> list[Object]:
        """The stand-in's, or on a real cluster those of this run of the tests."""

    @abstractmethod
    def nodes(self, count: int, gpus: int = 0, holds: Mapping[str, Any] | None = None) -> list[str]:
        """The names of so many nodes that take pods, have so many GPUs each, and room for the pod `holds` when empty.
        Skips the test where a real cluster has not as many."""

    def wait_for_pods(self, test: Callable[[list[Object]], bool], timeout_s: float = 300) -> list[Object]:
        """Polls until the list of pods passes; raises TimeoutError with what there is instead."""
        give_up = time.monotonic() + timeout_s * self.patience
        while not test(pods := self.pods()):
            if time.monotonic() > give_up:
                raise TimeoutError(json.dumps([pod["status"] for pod in pods], indent=1))
            time.sleep(0.1)
        return pods
