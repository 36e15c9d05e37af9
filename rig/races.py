"""Other builds of the kernels on the host: with threads in other orders, or to find races (races.h)."""

import ctypes
import hashlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

from accel.backends.cuda import host
from accel.system.native.object_cache import cached_path

HERE = Path(__file__).parent


def _including(header: str) -> tuple[str, ...]:
    path = HERE / header
    return "-include", str(path), f"-DHEADER=0x{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


ORDERS = {
    "backwards": ("-DTURN(i)=(THREADS-1-(i))", "-DBLOCK_TURN(i,count)=((count)-1-(i))"),
    "another in every phase": _including("orders.h"),
}
"""Flags for orders of threads. With the usual order, "backwards" tries both orders of any two threads."""


def order(seed: int) -> tuple[str, ...]:
    """Flags for an order of threads and blocks chosen by a number; 1 is that of ``ORDERS``."""
    return (*ORDERS["another in every phase"], f"-DSEED={seed}")


@contextmanager
def built_with(*flags: str) -> Iterator[None]:
    """A context in which kernels are also built with these flags."""
    function = host.function
    with mock.patch.object(host, "function", lambda kernel: function(kernel, flags=(*host.FLAGS, *flags))):
        yield


class Races:
    """The races found so far, and the choice of a barrier to leave out."""

    def __init__(self) -> None:
        self._runtime = _runtime()
        self._lock = threading.Lock()

    def launch(self, run: Callable[..., None], *arguments: Any) -> None:
        with self._lock:
            self._runtime.race_launch()
            run(*arguments)

    def found(self) -> list[str]:
        """The races found since the last call."""
        return [_located(*line) for line in self._lines(self._runtime.race_report)]

    def barriers(self) -> list[tuple[str, int]]:
        """The files and lines of the phases reached so far, each of which ends with a barrier."""
        return [(file, int(line)) for file, line in self._lines(self._runtime.race_sites)]

    def without(self, file: str = "", line: int = 0) -> None:
        """Leave out only the barrier at this place; by default none."""
        self._runtime.race_forget(file.encode(), line)

    def _lines(self, say: Callable[[Any, int], int]) -> list[list[str]]:
        text = ctypes.create_string_buffer(1 << 20)
        assert say(text, len(text)) < len(text)
        return [line.split("\t") for line in text.value.decode().splitlines()]


@contextmanager
def finding_races(seed: int = 1) -> Iterator[Races]:
    """A context in which kernels are built to find races; ``seed`` chooses the order of threads."""
    races, function = Races(), host.function
    flags = (
        *("-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-fno-tree-loop-im"),
        *("-fsanitize=thread", "-nodefaultlibs", *_including("races.h"), f"-DSEED={seed}"),
    )
    with mock.patch.object(host, "function", lambda kernel: partial(races.launch, function(kernel, flags=flags))):
        races.found()
        try:
            yield races
        finally:
            races.without()


@cache
def _runtime() -> Any:
    source = HERE / "races.cpp"
    name = f"races-{hashlib.sha256(source.read_bytes()).hexdigest()[:32]}.so"
    flags = ("-std=c++17", "-O2", "-shared", "-fPIC")
    return ctypes.CDLL(str(cached_path(name, lambda: host._compile(source, flags))), ctypes.RTLD_GLOBAL)


def _located(what: str, library: str, offset: str, times: str) -> str:
    """A description of a race, with the lines of the sources if there is addr2line."""
    command = ["addr2line", "-i", "-s", "-e", library, hex(int(offset, 16) - 1)]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:
        lines = [f"{Path(library).name}+{offset}"]
    return f"{what} ({times} times) at {' < '.join(line for line in lines if ':' in line)}"
