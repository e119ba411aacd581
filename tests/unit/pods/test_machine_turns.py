"""Which pods share this machine: groups, their order, and locks that end with the pod."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.spec import RunSpec
from bench_image.contract.turns import TURNS_ENV
from bench_image.contract.work import Device
from tests.builders import make_spec
from trainbench.pods import machine_turns
from trainbench.pods.machine_turns import MachineTurns, Slot, slots


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def trial(num_nodes: int, round_: int = 1, device: Device = Device.CPU) -> list[RunSpec]:
    return [
        make_spec(node=f"node-{number}", round=round_).changed(work={"device": device}) for number in range(num_nodes)
    ]


def places(specs: Sequence[RunSpec]) -> list[tuple[int, int, int]]:
    return [(slot.group, slot.member, slot.num_members) for slot in slots(specs)]


def test_nodes_of_a_trial_share_the_machine_round_by_round_in_even_groups() -> None:
    """9 nodes: 3 groups of 3, not 4, 4 and one that nobody is measured beside."""
    first, second = [(0, member, 4) for member in range(4)], [(1, member, 4) for member in range(4)]
    assert places([*trial(4), *trial(4, round_=2)]) == first + second
    assert places(trial(9)) == [(group, member, 3) for group in range(3) for member in range(3)]
    assert [slot.num_members for slot in slots(trial(5))] == [3, 3, 3, 2, 2]
    ddp = make_spec(node="node-1").changed(work={"device": Device.CPU})
    ddp = ddp.changed(placement={"strategy": Strategy.DDP, "gpus_per_node": 2})
    assert places([*trial(2, device=Device.CUDA), ddp]) == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]  # each has it to itself


def turns(group: int, member: int = 0, of: int = 1) -> MachineTurns:
    return MachineTurns("/store", "night-1", Slot(group=group, member=member, num_members=of))


def never() -> bool:
    return False


def test_a_pod_knows_the_folder_of_its_group_and_one_alone_knows_nothing(folders: Path) -> None:
    first, second = (json.loads(turns(0, member, of=2).environment[TURNS_ENV]) for member in (0, 1))
    assert first["folder"] == second["folder"]
    assert Path(first["folder"]).is_relative_to(folders)
    assert (first["member"], second["member"], first["num_members"]) == (0, 1, 2)
    assert turns(0).environment == {}


def test_members_of_a_group_start_together_and_the_last_one_removes_the_folder(folders: Path) -> None:
    with turns(0, 0, of=2).admitted(never), turns(0, 1, of=2).admitted(never):
        assert len(list(folders.glob("*/*/000000/member-*"))) == 2
    assert list(folders.glob("*/*")) == []


def test_the_next_group_starts_when_the_last_pod_of_this_one_has_ended() -> None:
    order: list[str] = []
    waits = threading.Event()

    def next_group() -> None:
        def asked() -> bool:
            waits.set()
            return False

        with turns(1).admitted(asked):
            order.append("next")

    with ExitStack() as group:
        for member in (0, 1):
            group.enter_context(turns(0, member, of=2).admitted(never))
        thread = threading.Thread(target=next_group)
        thread.start()
        waits.wait()
        order.append("group ends")
    thread.join()

    assert order == ["group ends", "next"]


def test_pods_that_come_and_go_at_the_same_time_do_not_disturb_each_other(folders: Path) -> None:
    """The last one removes the folder while the next one makes its file in it."""

    def come_and_go(member: int) -> None:
        for _ in range(50):
            with turns(0, member, of=4).admitted(never) as lock:
                os.fstat(lock)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(come_and_go, range(4)))
    assert list(folders.glob("*/*")) == []


def test_a_pod_that_is_stopped_while_it_waits_comes_out() -> None:
    with turns(0).admitted(never), turns(1).admitted(lambda: True):
        pass


def test_the_pod_keeps_the_lock_when_its_launcher_dies(folders: Path) -> None:
    with turns(0).admitted(never) as lock:
        pod = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock])
    (member,) = folders.glob("*/*/000000/member-0")
    assert machine_turns._is_alive(member)
    pod.communicate(b"\n")
    assert not machine_turns._is_alive(member)


def test_a_folder_that_is_a_link_is_refused(folders: Path) -> None:
    (folders / "other").mkdir()
    (folders / f"trainbench-turns-{os.getuid()}").symlink_to(folders / "other")
    with pytest.raises(PermissionError, match="belongs to another user"), turns(0).admitted(never):
        pass
