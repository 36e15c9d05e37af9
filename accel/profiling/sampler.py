"""A thread that samples, 11 times a second at first, the user's running statement, and how late it gets the GIL."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from accel.system import fork
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import GIL
from accel.system.timing.row_words import TEXTS, TEXTS_BEGIN

_HERTZ = 11
_MANY = 64  # samples, after which a quarter of the rate is enough
_MOST_KINDS = 4096  # code objects
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PROFILING = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARIES = tuple(
    {os.path.dirname(os.__file__) + os.sep, *(path + os.sep for path in sys.path if "-packages" in path)}
)

Statement = tuple[str, str, int, bool]
"""A statement's file, function and line, the same for all code objects; and whether it makes a batch."""


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
        self._kinds: dict[int, tuple[int, CodeType]] = {}
        """The kinds of code objects, by identity, as a code object's hash is computed from all its names and constants
        each time. They are kept alive here, so that identities stay valid."""

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
        pauses = pauses and self._thread is not None
        if pauses:
            self.stop()
        try:
            yield
        finally:
            if pauses:
                self._run()

    def _look(self, ends: threading.Lock) -> None:
        clock, now = clocks.clock(), clocks.now
        period = self._period()
        due = now() + period
        while not ends.acquire(timeout=period / 1e9) and measuring.measuring():
            clock.done.append(max(now() - due, 0) << 6 | GIL)
            frame = sys._current_frames().get(self._watched)
            if frame is not None:
                self._note(frame)
            del frame
            self._looks += 1
            if self._looks % _MANY == 0:
                self._rank()
                period = self._period()
            due = now() + period
        self._rank()

    def _period(self) -> int:
        return 1_000_000_000 * (1 if self._looks < _MANY else 4) // _HERTZ

    def _note(self, frame: FrameType | None) -> None:
        """Count the innermost statement of the user's, unless a stage runs inside of it."""
        kinds = self._kinds
        while frame is not None:
            code = frame.f_code
            known = kinds.get(id(code))
            if known is None:
                if len(kinds) >= _MOST_KINDS:  # code objects are made all the time
                    kinds.clear()
                known = kinds[id(code)] = _kind(frame), code
            if known[0] == _STAGE:
                return
            if known[0] == _USERS:
                self._count((code.co_filename, code.co_name, frame.f_lineno, _loads(frame)))
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
        place = self._places.get(statement)
        if place is not None and place < TEXTS:
            row[TEXTS_BEGIN + place] += 1
        elif place is None:
            place = self._places[statement] = len(self._places)
            if place < TEXTS:
                measuring.write_text(row, place, *self._written(statement))

    def _rank(self) -> None:
        """Write the most frequent statements, if there is no room for all."""
        row = measuring.row()
        if row is not None and len(self._places) > TEXTS:
            self._places.clear()
            for place, (statement, _) in enumerate(self._found.most_common(TEXTS)):
                self._places[statement] = place
                measuring.write_text(row, place, *self._written(statement))

    def _written(self, statement: Statement) -> tuple[str, int]:
        file, function, line, loads = statement
        name = f"{loads:d}\n{line}\n{function[:60]}\n{file[-160:]}"
        return name, self._found[statement]


_USERS, _STAGE, _OTHER = range(3)


def _kind(frame: FrameType) -> int:
    code, file = frame.f_code, frame.f_code.co_filename
    if file.startswith((_PROFILING, clocks.__file__)) or code.co_name == "_worker_loop":
        return _STAGE
    generated = file == "<string>" and frame.f_globals.get("__name__") != "__main__"  # such as a dataclass's methods
    return _OTHER if generated or file.startswith((_OURS, "<frozen", *_LIBRARIES)) else _USERS


def _loads(frame: FrameType | None) -> bool:
    """Whether a frame runs to make a batch, rather than to use one."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PROFILING):
            return True
        frame = frame.f_back
    return False


sampler = Sampler()
fork.register(in_child=sampler.forget)
