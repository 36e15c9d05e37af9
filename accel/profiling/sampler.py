"""A thread that samples, 11 times a second at first, the user's running statement, and how late it gets the GIL."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_stack
from types import FrameType
from typing import Any

from accel.system import fork
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import GIL

_HERTZ = 11
_MANY = 64  # samples, after which a quarter of the rate is enough
_PROFILING = os.path.dirname(os.path.abspath(__file__)) + os.sep
_OURS = os.path.join(os.path.dirname(_PROFILING[:-1]), "")
_LIBRARIES = tuple(
    {os.path.dirname(os.__file__) + os.sep, *(path + os.sep for path in sys.path if "-packages" in path)}
)

Statement = tuple[str, str, int, bool]
"""A statement's file, function and line; and whether it makes a batch, rather than uses one."""


class Sampler:
    """The sampling thread. Each sample does little, as after work on images the processor's caches have nothing of
    Python's."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._ends = threading.Lock()
        self._watched = self._looks = 0
        self._found: Counter[Statement] = Counter()
        self._places: dict[Statement, int] = {}
        """The places of the statements that are written to this process's row."""
        self._row: Any = None

    def forget(self) -> None:
        """Reset everything, as in a forked child the thread is gone."""
        self._thread = self._row = None
        self._looks = 0
        self._found.clear()
        self._places.clear()

    @property
    def runs(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Sample the calling thread from now on."""
        self._watched = threading.get_ident()
        self._run()

    def _run(self) -> None:
        self._ends = threading.Lock()  # a new one: a fork may have come while the old one was held
        self._ends.acquire()
        self._thread = threading.Thread(target=self._look, args=(self._ends,), name="accel-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ends.release()
            if thread is not threading.current_thread():
                thread.join()

    @contextmanager
    def paused(self, pauses: bool) -> Iterator[None]:
        """Stop the thread inside the block, if it ``pauses``, as this process forks there."""
        pauses = pauses and self.runs
        if pauses:
            self.stop()
        try:
            yield
        finally:
            if pauses:
                self._run()

    def _look(self, ends: threading.Lock) -> None:
        clock = clocks.clock()
        while True:
            period = 1_000_000_000 * (1 if self._looks < _MANY else 4) // _HERTZ
            due = clocks.now() + period
            if ends.acquire(timeout=period / 1e9) or not measuring.measuring():
                break
            clock.add(GIL, max(clocks.now() - due, 0))
            self._note(sys._current_frames().get(self._watched))
            self._looks += 1
            if self._looks % _MANY == 0:
                self._rank()
        self._rank()

    def _note(self, frame: FrameType | None) -> None:
        """Count the innermost statement of the user's, unless a stage runs inside of it."""
        while frame is not None and not _is_stage(frame):
            if _is_users(frame):
                loads = any(each.f_code.co_filename.startswith(_PROFILING) for each, _ in walk_stack(frame))
                self._count((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno, loads))
                return
            frame = frame.f_back

    def _count(self, statement: Statement) -> None:
        """Count a statement, and write its count to this process's row."""
        self._found[statement] += 1
        row = measuring.row()
        if row is None:
            return
        if row is not self._row:
            self._row = row
            self._places.clear()
        self._write(self._places.setdefault(statement, len(self._places)), statement)

    def _rank(self) -> None:
        """Write the most frequent statements, if there is no room for all."""
        if measuring.row() is not None and len(self._places) > measuring.TEXTS:
            self._places = {each: place for place, (each, _) in enumerate(self._found.most_common(measuring.TEXTS))}
            for statement, place in self._places.items():
                self._write(place, statement)

    def _write(self, place: int, statement: Statement) -> None:
        file, function, line, loads = statement
        if place < measuring.TEXTS:
            self._row["texts"][place] = f"{loads:d}\n{line}\n{function[:60]}\n{file[-160:]}".encode()
            self._row["times"][place] = self._found[statement]


def _is_stage(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith((_PROFILING, clocks.__file__)) or frame.f_code.co_name == "_worker_loop"


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    generated = file == "<string>" and frame.f_globals.get("__name__") != "__main__"  # such as a dataclass's methods
    return not generated and not file.startswith((_OURS, "<frozen", *_LIBRARIES))


sampler = Sampler()
fork.register(in_child=sampler.forget)
