"""A port for a server of a test."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 32_000)  # below those that Linux gives to connections, which could take it before the server does


def free_port() -> int:
    """A port of the loopback that nobody listens on now. Raises OSError if all that were tried are taken."""
    *others, last = random.sample(PORTS, 20)
    for port in others:
        try:
            return _bound(port)
        except OSError:
            continue
    return _bound(last)


def _bound(port: int) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
        return port
