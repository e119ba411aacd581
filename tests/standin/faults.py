"""Faults that tests inject: into replies of the API server, and into pods."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ACTIONS = ("evict", "lose_node", "oom", "preempt", "vanish")
MOMENTS = ("running", "ended")


class FaultError(ValueError):
    """The requested fault does not exist; the message lists those that do."""


@dataclass
class ReplyFault:
    """The next `n` requests that match (0: all) fail. `after`: they are carried out, then the reply is lost."""

    path: str = ""  # a regular expression, searched in path and query
    method: str = ""
    body: str = ""  # a regular expression, searched in what was sent
    n: int = 1
    code: int | None = None  # the status of the reply
    message: str = "injected fault"
    after: bool = False
    delay_s: float = 0.0
    drop: bool = False  # the connection is closed without a reply
    retry_after_s: int | None = None
    for_s: float | None = None  # it is over so many seconds after it was injected
    until: float | None = None


@dataclass
class PodFault:
    """At `moment` of the next `n` pods whose name matches (0: all), `delay_s` later, `action` happens to it."""

    action: str
    pod: str = ""  # a regular expression, searched in the name
    moment: str = "running"
    n: int = 1
    delay_s: float = 0.0
    deadline_s: int | None = None  # to which the deadline of a pod on a node that dies is lowered


class Faults:
    def __init__(self) -> None:
        self._replies: list[ReplyFault] = []
        self._pods: list[PodFault] = []

    def add(self, values: Mapping[str, Any]) -> ReplyFault | PodFault:
        """A fault with an `action` is a pod's, all others are replies'."""
        fault: ReplyFault | PodFault
        if "action" not in values:
            fault = ReplyFault(**values)
            fault.until = None if fault.for_s is None else time.monotonic() + fault.for_s
            self._replies.append(fault)
            return fault
        fault = PodFault(**values)
        if fault.action not in ACTIONS or fault.moment not in MOMENTS:
            raise FaultError(
                f"no fault '{fault.action}' at '{fault.moment}': actions are {', '.join(ACTIONS)}; "
                f"moments are {', '.join(MOMENTS)}"
            )
        self._pods.append(fault)
        return fault

    def clear(self) -> None:
        self._replies.clear()
        self._pods.clear()

    def for_request(self, method: str, path: str, body: str) -> ReplyFault | None:
        now = time.monotonic()
        self._replies = [fault for fault in self._replies if fault.until is None or now < fault.until]
        for fault in self._replies:
            if fault.method in ("", method) and re.search(fault.path, path) and re.search(fault.body, body):
                _use(fault, self._replies)
                return fault
        return None

    def for_pod(self, name: str, moment: str) -> list[PodFault]:
        due = [fault for fault in self._pods if fault.moment == moment and re.search(fault.pod, name)]
        for fault in due:
            _use(fault, self._pods)
        return due


def _use(fault: Any, faults: list[Any]) -> None:
    if fault.n == 1:
        faults.remove(fault)
    elif fault.n > 1:
        fault.n -= 1
