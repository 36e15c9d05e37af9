"""Helpers of the tests of hard use: loaders of large batches, and scripts in processes of their own."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchvision import transforms as T

from tests.support import fresh, helpers

TIMEOUT = 100
ROOT = Path(__file__).resolve().parents[2]
LARGE = T.Compose([T.Resize((300, 300)), T.ToTensor()])  # batches of more than 1 MB: their memory is used again

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, forks")


def loader(dataset: Any, workers: int = 0, **options: Any) -> DataLoader[Any]:
    options = {"batch_size": 3, "timeout": TIMEOUT * (workers > 0), **options}
    return DataLoader(dataset, num_workers=workers, **options)


def plain(function: Callable[[], Any]) -> Any:
    """The function's result under torchvision."""
    return helpers.run("torchvision", function)[0]


def started(script: str, *arguments: str) -> fresh.Process:
    """A fresh interpreter that runs ``script`` with the project's folder on its path, in a process group of its own."""
    return fresh.Process(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}", arguments, whole=True)


def finished(process: fresh.Process, timeout: float = 60) -> tuple[int, str, str]:
    """Exit status and output; a process that hangs is killed with its children, and the test fails."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"it hangs; so far:\n{out}\n{err}")
    assert process.returncode is not None
    return process.returncode, out, err


def in_child(function: Callable[[], bool]) -> Callable[[], bool]:
    """Fork; the child waits for the parent's sign, then runs the function. Gives what to call for its result."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, since Python 3.12
        pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(60)
            os.read(reader, 1)
            os._exit(0 if function() else 3)
        finally:
            os._exit(4)

    def result() -> bool:
        os.write(writer, b"x")
        os.close(reader)
        os.close(writer)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    return result


def in_threads(functions: list[Callable[[], Any]]) -> list[Any]:
    """The result of each, run at once; an exception is raised here."""
    results: list[Any] = [None] * len(functions)
    barrier = threading.Barrier(len(functions))

    def run(number: int) -> None:
        barrier.wait(60)
        try:
            results[number] = functions[number]()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + TIMEOUT
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
        assert not thread.is_alive(), "it hangs"
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def descriptors(below: Path | None = None) -> int:
    """How many files this process has open, without those that nothing refers to any more.

    ``below``: of a folder, or one file; others may be closed by what earlier tests have left, at any time.
    """
    gc.collect()
    numbers = os.listdir("/proc/self/fd")
    if below is None:
        return len(numbers)
    names = []
    for number in numbers:
        with suppress(FileNotFoundError):  # the list's own, and what threads close
            names.append(Path(os.readlink(f"/proc/self/fd/{number}")))
    return sum(name == below or below in name.parents for name in names)


def in_thread(function: Callable[[], Any]) -> Any:
    """The function's result in a thread of its own."""
    return in_threads([function])[0]


def eventually(condition: Callable[[], Any]) -> None:
    """Wait for what other threads are to bring about."""
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came about")


def killed(work: Callable[[Callable[[], Any]], Any], after: float) -> None:
    """Have a child of a group of its own work, and kill the group some time after it has called what it is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, since Python 3.12
        begins, says = os.pipe()
        pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            work(lambda: os.write(says, b"!"))
        finally:
            os._exit(1)
    os.close(says)
    os.read(begins, 1)
    os.close(begins)
    time.sleep(after)
    os.killpg(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL, "it ended by itself"
