"""A thread that looks, 11 times a second, which statement of the user's runs; and how late it comes to look."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from accel.system import clocks, fork, measuring
from accel.system.clocks import GIL
from accel.system.row_words import TEXTS

_HERTZ = 11
_RANKED_EVERY = 64  # looks
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PROFILING = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARIES = tuple(
    {os.path.dirname(os.__file__) + os.sep, *(path + os.sep for path in sys.path if "-packages" in path)}
)


class Sampler:
    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()
        self._watched = 0
        self._found: Counter[tuple[CodeType, int, bool]] = Counter()
        self._places: dict[tuple[CodeType, int, bool], int] = {}
        """Where in this process's row those statements are that are written there."""
        self._row: Any = None
        self._kinds: dict[CodeType, int] = {}

    def forget(self) -> None:
        """In a forked child the thread is gone."""
        self._thread = self._row = None
        self._found.clear()
        self._places.clear()

    @property
    def runs(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Look at this thread from now on."""
        self._watched = threading.get_ident()
        self._run()

    def _run(self) -> None:
        self._ends = threading.Event()  # a new one: a fork may have come while another was held
        self._thread = threading.Thread(target=self._look, args=(self._ends,), name="accel-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ends.set()
            if thread is not threading.current_thread():
                thread.join()

    @contextmanager
    def paused(self, pauses: bool) -> Iterator[None]:
        """Have no thread inside, where this process forks."""
        pauses = pauses and self._thread is not None
        if pauses:
            self.stop()
        try:
            yield
        finally:
            if pauses:
                self._run()

    def _look(self, ends: threading.Event) -> None:
        clock, looks = clocks.clock(), 0
        period = 1_000_000_000 // _HERTZ
        wanted = clocks.now() + period
        while not ends.wait(period / 1e9) and measuring.measuring():
            late = clocks.now() - wanted
            clock.add(GIL, max(late, 0))
            frame = sys._current_frames().get(self._watched)
            if frame is not None:
                self._note(frame)
            del frame
            looks += 1
            if looks % _RANKED_EVERY == 0:
                self._rank()
            wanted = clocks.now() + period
        self._rank()

    def _note(self, frame: FrameType | None) -> None:
        """Count the innermost statement of the user's, unless a stage of another's runs inside of it."""
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(code)
            if kind is None:
                kind = self._kinds[code] = _kind(code)
            if kind == _STAGE:
                return
            if kind == _USERS:
                self._count((code, frame.f_lineno, _loads(frame)))
                return
            frame = frame.f_back

    def _count(self, statement: tuple[CodeType, int, bool]) -> None:
        """Count a statement, and write how often it was found."""
        self._found[statement] += 1
        row = measuring.row()
        if row is None:
            return
        if row is not self._row:
            self._row = row
            self._places.clear()
        place = self._places.setdefault(statement, len(self._places))
        if place < TEXTS:
            measuring.write_text(row, place, *self._written(statement))

    def _rank(self) -> None:
        """Write the statements that were found most often, where there is no room for all."""
        row = measuring.row()
        if row is not None and len(self._places) > TEXTS:
            self._places.clear()
            for place, (statement, _) in enumerate(self._found.most_common(TEXTS)):
                self._places[statement] = place
                measuring.write_text(row, place, *self._written(statement))

    def _written(self, statement: tuple[CodeType, int, bool]) -> tuple[str, int]:
        code, line, loads = statement
        name = f"{loads:d}\n{line}\n{code.co_name[:60]}\n{code.co_filename[-160:]}"
        return name, self._found[statement]


_USERS, _STAGE, _OTHER = range(3)


def _kind(code: CodeType) -> int:
    file = code.co_filename
    if code is _STAGE_CODE or code in of_stages or file.startswith(_PROFILING) or code.co_name == "_worker_loop":
        return _STAGE
    return _OTHER if file.startswith((_OURS, "<frozen", *_LIBRARIES)) else _USERS


def _loads(frame: FrameType | None) -> bool:
    """Whether a frame makes a batch; else it uses one."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PROFILING):
            return True
        frame = frame.f_back
    return False


of_stages: set[CodeType] = set()
"""Of functions that are stages, also while these are not told apart."""
_STAGE_CODE: Any = clocks.timed(0, len).__code__
sampler = Sampler()
fork.register(in_child=sampler.forget)
