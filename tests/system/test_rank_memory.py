"""Memory that ranks share, without a launcher: forked processes that are told the same one."""

import os
import random
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from accel.system import memory
from accel.system.rank_memory import shared_file
from tests.support.processes import in_child, linux

pytestmark = linux
SIZE = 1 << 20


@pytest.fixture(autouse=True)
def launcher(monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of a process that has ended, or never was."""
    number = random.SystemRandom().randrange(1 << 30, 1 << 31)
    monkeypatch.setattr(os, "getppid", lambda: number)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    return number


def which() -> tuple[int, int]:
    """The file of this process: its inode and size."""
    status = os.fstat(shared_file(SIZE))
    return status.st_ino, status.st_size


@contextmanager
def another(answer: Callable[[], object]) -> Iterator[str]:
    """What the function gives in a forked process, which is there in the block, and is killed at its end."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        signal.alarm(60)
        os.write(writer, repr(answer()).encode())
        signal.pause()
    os.close(writer)
    try:
        yield os.read(reader, 99).decode()
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(reader)


def alone() -> bool:
    with another(which) as first, another(which) as second, another(which) as third:
        assert first == second == third
        assert first.endswith(f", {SIZE})")
    return True


def test_the_first_one_has_it() -> None:
    assert in_child(alone)()


def test_ranks_that_are_killed_leave_nothing(launcher: int) -> None:
    assert in_child(lambda: alone() and alone())()
    with open("/proc/net/unix") as sockets:
        assert str(launcher) not in sockets.read()


def test_a_worker_that_outlives_its_rank() -> None:
    """The name is free, and the file is the worker's."""

    def rank_with_worker() -> object:
        found = which()
        if os.fork() == 0:
            signal.alarm(20)
            signal.pause()
        return found

    def check() -> bool:
        with another(rank_with_worker) as first:
            pass
        with another(which) as second, another(which) as third:
            assert first != second == third
        return True

    assert in_child(check)()


def test_many_at_once() -> None:
    def check() -> bool:
        for _ in range(5):
            begin, begun = os.pipe()
            answers, answer = os.pipe()
            ranks = []
            for _ in range(8):
                ranks.append(os.fork())
                if ranks[-1] == 0:
                    signal.alarm(60)
                    os.close(begun)
                    os.read(begin, 1)
                    os.write(answer, f"{which()}\n".encode())
                    signal.pause()
            os.close(begun)
            lines = b""
            while lines.count(b"\n") < 8:
                lines += os.read(answers, 999)
            for rank in ranks:
                os.kill(rank, signal.SIGKILL)
                os.waitpid(rank, 0)
            assert len(set(lines.splitlines())) == 1, lines
        return True

    assert in_child(check)()


@pytest.mark.parametrize("user", [None, 65534])
def test_a_socket_of_somebody_elses(launcher: int, user: int | None) -> None:
    """It has the name; the ranks have files of their own, of their shares."""
    if user is not None and os.getuid() != 0:
        pytest.skip("only root can be another user")

    meeting = socket.socket(socket.AF_UNIX)

    def listen() -> None:
        meeting.bind(f"\0accel-ranks-{os.getuid()}-{launcher}")
        if user is not None:
            memory.anonymous_file(SIZE, f"accel-ranks-of-{launcher}")  # which is not taken either
            os.seteuid(user)
        meeting.listen()

    def check() -> bool:
        with another(listen), another(which) as first, another(which) as second:
            assert first != second
            assert first.endswith(f", {SIZE // 4})")
        return True

    with meeting:
        assert in_child(check)()


def test_a_process_that_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK")
    monkeypatch.delenv("LOCAL_WORLD_SIZE")

    def check() -> bool:
        with another(which) as first, another(which) as second:
            assert first != second
        return True

    assert in_child(check)()


def test_a_launcher_that_is_a_rank_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> bool:
        monkeypatch.delenv("LOCAL_RANK")
        first = which()
        own = os.getpid()
        monkeypatch.setattr(os, "getppid", lambda: own)
        monkeypatch.setenv("LOCAL_RANK", "1")
        with another(which) as second:
            assert str(first)[:-1].split(",")[0] == second[:-1].split(",")[0]
        return True

    assert in_child(check)()
