"""Child processes for work that may crash or hang: one reports its progress, another is a command."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

_POLL = 0.2  # seconds

Say = Callable[[Any], None]


class Child:
    """A process that is killed at the end of the block if it still runs.

    Args:
        method: the way to start it: a fork of this process, or a new interpreter.
        work: called there with a function that sends messages; for a new interpreter it is pickled.
        log: a file for its output.
    """

    def __init__(self, method: Literal["fork", "spawn"], work: Callable[[Say], object], log: Path) -> None:
        context: Any = multiprocessing.get_context(method)
        self._log = log
        self._said, out = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(work, log, out))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads: NumPy's, which have no locks
            self._process.start()
        out.close()
        self.pid = self._process.pid or 0

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.join()
        self._said.close()

    def messages(self) -> Iterator[Any]:
        """Yield its messages, and now and then None, until it ends."""
        with suppress(EOFError, OSError):
            while True:
                alive = self._process.is_alive()
                if self._said.poll(_POLL):
                    yield self._said.recv()
                elif alive:
                    yield None
                else:
                    return

    def wait(self) -> int:
        """The exit status, or the negative number of the signal."""
        self._process.join()
        return self._process.exitcode or 0

    def printed(self) -> str:
        """Its output so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""


def _work(work: Callable[[Say], object], log: Path, out: Any) -> None:
    with log.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    # the parent's may be a test's
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
    faulthandler.enable(2, all_threads=False)
    work(out.send)


def run(
    command: Sequence[str], limit: float, out: IO[bytes], where: Path, environment: Mapping[str, str] | None = None
) -> int | None:
    """Run a command; return its exit status, or None if it was killed after ``limit`` seconds.

    Its processes are a group, of which none is left afterwards, nor if this process is killed meanwhile. It is no
    session, which would survive when all processes are ended.

    Args:
        out: a file for its output. where: the folder to run it in. environment: its variables; None for this process's.
    """
    files = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
    process = subprocess.Popen(command, cwd=where, env=environment, preexec_fn=os.setpgrp, **files)  # type: ignore[call-overload]
    try:
        with _ended_with_this(process.pid):
            return int(process.wait(limit))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _ended_with_this(group: int) -> Iterator[None]:
    """A context in which a group of processes ends with this one, even if this is killed: a process that waits on a
    pipe ends them."""
    command = ["sh", "-c", f"read nothing; kill -KILL -{group}"]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=os.setpgrp)
    try:
        yield
    finally:
        watcher.kill()
        watcher.wait()
        assert watcher.stdin is not None
        watcher.stdin.close()
