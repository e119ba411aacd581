"""What a launcher tells the pods that take turns on its machine, and the files by which they do."""

from __future__ import annotations

from bench_image.contract.frozen import Frozen

TURNS_ENV = "TRAINBENCH_TURNS"
# Locked by the pod's launcher for as long as the pod lives; holds the turns taken, once it takes part.
MEMBER_FILE = "member-{}"


class Turns(Frozen):
    """A pod is `member` 0, 1, ... of `num_members`, whose files lie in `folder`."""

    folder: str
    member: int
    num_members: int
