"""Fresh interpreters without the seconds that importing torch takes: forks of a process that has just done that."""

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from threading import Thread
from typing import IO

_SERVER = Path(__file__).with_name("fresh_server.py")


class Process:
    """The part of ``subprocess.Popen`` that tests use."""

    def __init__(self, code: str, arguments: tuple[str, ...], *, whole: bool = False) -> None:
        """Starts it; ``whole``: at its end it lets go of all that it has, as an interpreter of its own would."""
        reader, writer = os.pipe()
        errors, errors_writer = os.pipe()
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(_address())
        request = {
            "code": code,
            "arguments": arguments,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "whole": whole,
        }
        with open(os.devnull) as nothing:
            files = [nothing.fileno(), writer, errors_writer]
            socket.send_fds(self._connection, [json.dumps(request).encode()], files)
        os.close(writer)
        os.close(errors_writer)
        self._answers = self._connection.makefile("rb", buffering=0)
        self.stdout: IO[str] = os.fdopen(reader)
        self.stderr: IO[str] = os.fdopen(errors)
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None
        self._texts = ["", ""]
        self._readers: list[Thread] = []

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All of its output; raises what ``Popen.communicate`` raises, and can then be called again."""

        def read(number: int, stream: IO[str]) -> None:
            self._texts[number] = stream.read()

        if not self._readers:
            streams = enumerate((self.stdout, self.stderr))
            self._readers = [Thread(target=read, args=each, daemon=True) for each in streams]
            for reader in self._readers:
                reader.start()
        if not select.select([self._connection], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a fresh process", timeout or 0)
        self.returncode = int(self._answers.readline())
        for reader in self._readers:
            reader.join(timeout)
        self.close()
        return self._texts[0], self._texts[1]

    def close(self) -> None:
        for each in (self.stdout, self.stderr, self._answers, self._connection):
            each.close()


@cache
def _address() -> str:
    """Where the process listens that is forked from; it is started at the first use."""
    folder = tempfile.mkdtemp()
    path = f"{folder}/fresh"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(64)
    command = [sys.executable, "-W", "error", "-c", _SERVER.read_text(), str(listening.fileno())]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], start_new_session=True, cwd=folder
    )
    server.wait()  # it goes on in a child, until this closes its standard input
    listening.close()

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        os.unlink(path)
        os.rmdir(folder)

    atexit.register(end)
    return path
