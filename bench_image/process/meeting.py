"""Where the processes of a run over several nodes meet."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from bench_image.contract.frozen import ContractError
from bench_image.contract.pod_io import MEETING_ENV

LOOPBACK = "127.0.0.1"  # a pod's own name need not resolve


def meeting(nodes: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Node rank, address and port of node rank 0, by their variables' names; one node meets itself at a free port.
    Raises ContractError where a pod of several lacks one.
    """
    if nodes == 1:
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            return dict(zip(MEETING_ENV, ("0", LOOPBACK, str(probe.getsockname()[1])), strict=True))
    if absent := [name for name in MEETING_ENV if not environ.get(name)]:
        raise ContractError(f"{nodes} nodes, but {', '.join(absent)} not set: set them in each pod's environment")
    return {name: environ[name] for name in MEETING_ENV}
