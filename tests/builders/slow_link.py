"""A link of 100 Mbit/s and 5 ms between two network namespaces: `python -m tests.builders.slow_link A eth0 B node-1`.

It makes a TAP device in each, and what one takes the other gives later, until the process ends. `tc netem` needs a
module that many kernels lack.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

CLONE_NEWNET = 0x40000000
TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
RATE_BITS_PER_S, DELAY_S, LONGEST_QUEUE_S = 100e6, 0.005, 0.4


def enter(namespace: str) -> None:
    """This thread is in the network namespace from now on."""
    with Path("/run/netns", namespace).open() as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "the process may not enter the network namespace")


def tap(namespace: str, device: str) -> int:
    enter(namespace)
    descriptor = os.open(TUN, os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH14x", device.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def carry(source: int, target: int) -> None:
    """Frames of one direction. One that finds the queue full is lost, as at a switch."""
    queue: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def give() -> None:
        while True:
            due_s, frame = queue.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            os.write(target, frame)

    Thread(target=give, daemon=True).start()
    free_at_s = 0.0
    while True:
        frame = os.read(source, 65536)
        now_s = time.monotonic()
        if free_at_s - now_s < LONGEST_QUEUE_S:
            free_at_s = max(now_s, free_at_s) + 8 * len(frame) / RATE_BITS_PER_S
            queue.put((free_at_s + DELAY_S, frame))


if __name__ == "__main__":
    here, there = tap(*sys.argv[1:3]), tap(*sys.argv[3:5])
    # os.write to a device that is not up yet is an error.
    print("made", flush=True)
    sys.stdin.readline()
    Thread(target=carry, args=(there, here), daemon=True).start()
    carry(here, there)
