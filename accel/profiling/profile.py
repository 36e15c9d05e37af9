"""``accel.profile``: measure the training inside a block, and name its bottleneck."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from accel.system import log, stderr
from accel.system.imports import LazyModule
from accel.system.timing import measuring

if TYPE_CHECKING:
    from accel.profiling.report import Report

_collect = LazyModule("accel.profiling.collect")
_report = LazyModule("accel.profiling.report", draws=True)  # it imports rich
_instrumentation = LazyModule("accel.profiling.instrumentation")
_trace = LazyModule("accel.profiling.trace")


class profile:
    """Measure the training inside a ``with`` block; say what holds it back, and what would help by how much.

    ::

        with accel.profile() as report:
            for images, labels in loader:
                ...
        print(report.bottleneck)

    Every DataLoader that is iterated over inside is measured, with its workers: under any backend and, coarser, under
    "torchvision". Workers that live on from before are measured if a backend was in force when they were started.
    Results and random states are the same as without. ``start()`` and ``stop()`` do the same without a block.

    Args:
        show: print the report when the block ends, also if that is by an error; a notebook shows it instead.
        trace: a file for a trace in Chrome's format, which ui.perfetto.dev opens.
        json: a file for the report as JSON.

    Raises:
        RuntimeError: something is profiled already, in this process.
    """

    def __init__(self, *, show: bool = True, trace: str | Path | None = None, json: str | Path | None = None) -> None:
        self._show, self._trace, self._json = show, trace, json
        self.report: Report = _report.Report()
        self._pid = 0

    def start(self) -> Report:
        """Begin to measure; the report, which is returned, is filled by ``stop``."""
        _collect.start(trace=self._trace is not None)
        self._pid = os.getpid()
        return self.report

    def stop(self) -> Report:
        """Stop measuring, and return the report; a second call only returns it.

        In a forked child it does nothing, and the report stays empty.
        """
        if os.getpid() != self._pid:
            return self.report
        self._pid = 0
        with _collect.undisturbed():
            measured = _collect.stop(stderr.say if self._show else None)
            self.report.fill(measured)
            if self._trace is not None:
                _trace.write(measured, self._trace)
            if self._json is not None:
                self.report.save(self._json)
        log.flush()
        return self.report

    def __enter__(self) -> Report:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() == self._pid and self.stop().measured.loaders and self._show:
            shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
            if getattr(shell, "kernel", None) is not None:  # as output of a notebook's cell
                import_module("IPython.display").display(self.report)
            else:
                self.report.show()


measuring.changed = lambda begins: _instrumentation.changed(begins)
