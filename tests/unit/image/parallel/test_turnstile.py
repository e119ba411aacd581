"""Turns of pods on one machine: in order, without those that ended, not held up by those that are late or hang."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench_image.contract.turns import MEMBER_FILE, TURNS_ENV, Turns
from bench_image.parallel import turnstile
from bench_image.parallel.turnstile import SharedTurnstile, turnstile_of


class Launcher:
    """Holds the locks of the members' files, as the launcher and then the pods do."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.locks = folder, dict[int, int]()

    def start(self, member: int) -> None:
        self.locks[member] = os.open(self.folder / MEMBER_FILE.format(member), os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.locks[member], fcntl.LOCK_EX)
        os.pwrite(self.locks[member], b" ", 0)

    def end(self, member: int) -> None:
        os.close(self.locks.pop(member))

    def pair(self) -> tuple[SharedTurnstile, SharedTurnstile]:
        """Of two members, both started."""
        self.start(0)
        self.start(1)
        return self.member(0, of=2), self.member(1, of=2)

    def member(self, number: int, of: int) -> SharedTurnstile:
        return SharedTurnstile(Turns(folder=str(self.folder), member=number, num_members=of))


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path)
    yield made
    for member in list(made.locks):
        made.end(member)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turnstile, "ARRIVAL_LIMIT_S", 0.0)
    monkeypatch.setattr(turnstile, "STUCK_LIMIT_S", 0.0)


def test_members_take_turns_in_order_whoever_comes_first(launcher: Launcher) -> None:
    took: list[int] = []

    def pod(number: int) -> None:
        own = launcher.member(number, of=3)
        own.arrive()
        for _ in range(4):
            with own.turn():
                took.append(number)
        own.leave()

    for number in range(3):
        launcher.start(number)
    threads = [threading.Thread(target=pod, args=[number]) for number in (2, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert took == [0, 1, 2] * 4


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to a core")
def test_a_turn_of_all_members_is_on_one_core_and_the_next_turn_on_the_next(launcher: Launcher) -> None:
    all_cores = os.sched_getaffinity(0)
    members = launcher.pair()
    threads = [threading.Thread(target=member.arrive) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = []
    for _ in range(3):
        for member in members:
            with member.turn():
                took.append(os.sched_getaffinity(0))
            assert os.sched_getaffinity(0) == all_cores
    first, second, *_ = [{core} for core in sorted(all_cores)] * 2
    assert took == [first, first, second, second, *([{sorted(all_cores)[2 % len(all_cores)]}] * 2)]


def test_nobody_waits_for_a_member_that_ended_before_its_turn(launcher: Launcher) -> None:
    first, second = launcher.pair()
    launcher.end(0)  # the kernel releases the lock of a pod that dies
    second.arrive()
    with second.turn():
        pass
    launcher.start(0)
    first.arrive()  # started again, by somebody who cleared its task
    launcher.end(0)
    with second.turn():
        pass


def test_nobody_waits_for_a_member_that_has_left(launcher: Launcher) -> None:
    first, second = launcher.pair()
    first.leave()
    second.arrive()
    with second.turn():
        pass


@pytest.mark.usefixtures("impatient")
def test_a_member_that_never_comes_is_not_waited_for(launcher: Launcher, capfd: pytest.CaptureFixture[str]) -> None:
    launcher.start(1)
    launcher.member(1, of=2).arrive()

    assert "of the pods that take turns, 1 did not come: the others begin" in capfd.readouterr().err


@pytest.mark.usefixtures("impatient")
def test_a_late_member_joins_where_the_others_are(launcher: Launcher, tmp_path: Path) -> None:
    late, early = launcher.pair()
    early.arrive()
    for _ in range(5):
        with early.turn():
            pass
    late.arrive()

    assert (tmp_path / "member-0").read_text().strip() == "5"


@pytest.mark.usefixtures("impatient")
def test_a_member_that_hangs_is_passed_over_until_it_goes_on(launcher: Launcher, tmp_path: Path) -> None:
    hangs, goes_on = launcher.pair()
    hangs.arrive()
    goes_on.arrive()
    with hangs.turn():
        for _ in range(3):
            with goes_on.turn():
                pass

    assert (tmp_path / "member-0").read_text().strip() == "3", "it does not catch up"


def test_a_pod_alone_waits_for_nobody() -> None:
    alone = turnstile_of({})
    assert alone.arrive() == 0.0
    with alone.turn() as waited_s:
        assert waited_s == 0.0
    alone.leave()


def test_the_launcher_s_word_makes_it_shared(tmp_path: Path) -> None:
    word = Turns(folder=str(tmp_path), member=0, num_members=2).model_dump_json()
    assert isinstance(turnstile_of({TURNS_ENV: word}), SharedTurnstile)
