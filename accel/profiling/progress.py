"""The live line: images a second, the share of waiting, and the bottleneck."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from accel.profiling.measured import Measured
from accel.profiling.verdict import judge
from accel.system import stderr

_ERASE, _UP, _COLUMN = "\x1b[J", "\x1b[A", "\x1b[{}G"
_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")


class Line:
    """A line that is refreshed in place in a terminal; it does nothing if the output is none.

    It is drawn by the caller of ``update``, not by a thread, as a DataLoader may fork meanwhile. It stands below the
    script's output, unfinished progress bars included, and ends for good once the script moves the cursor itself.
    """

    def __init__(self, file: Any = None) -> None:
        """``file``: the stream to draw on; None for standard error."""
        self._file = sys.stderr if file is None else file
        there = stderr.is_terminal() if file is None else file.isatty()
        self._closed = not there or Console(file=self._file).is_dumb_terminal
        self.pid = os.getpid()
        self._text, self._shown, self._before = "", False, ""
        self._replaced: list[tuple[str, Any, _Written]] = []
        for name in () if self._closed else ("stdout", "stderr"):  # at once: a bar keeps the stream that it finds
            stream = getattr(sys, name)
            if stream is self._file or (stream is not None and stream.isatty()):
                self._replaced.append((name, stream, _Written(stream, self)))
                setattr(sys, name, self._replaced[-1][-1])

    def update(self, measured: Measured) -> None:
        """Redraw the line from new measurements."""
        if self._closed:
            return
        self._text = words(measured)
        self._file.write(self._erased() + self._drawn())
        self._file.flush()

    def close(self) -> None:
        """Remove the line."""
        if not self._closed:
            self._file.write(self._erased())
            self._file.flush()
        self._closed, self._text = True, ""
        for name, stream, written in self._replaced:
            if getattr(sys, name) is written:
                setattr(sys, name, stream)

    def around(self, text: str) -> str:
        """The script's text, with what must be written around it so that the line stands below."""
        if self._closed or os.getpid() != self.pid or not text:
            return text
        begin = self._erased()
        *_, last = re.split("[\r\n]", text)
        self._before = last if len(last) < len(text) else self._before + last
        if "\x1b" in _COLOUR.sub("", text):
            self._closed = True
        return begin + text + self._drawn()

    def _erased(self) -> str:
        shown, self._shown = self._shown, False
        return _ERASE if shown else ""

    def _drawn(self) -> str:
        """The text that draws the line: in the cursor's row, or the next one if that is not empty; the cursor stays."""
        if self._closed or not self._text:
            return ""
        width = max(Console(file=self._file).width - 1, 1)
        text = self._text if cell_len(self._text) <= width else set_cell_size(self._text, width - 1) + "…"
        self._shown = True
        if not self._before:
            return f"{text}\r"
        column = cell_len(_COLOUR.sub("", self._before)) % (width + 1)
        return f"\n{text}{_UP}{_COLUMN.format(column + 1)}"


class _Written:
    """A stream of the script's that keeps the line below what is written to it."""

    def __init__(self, stream: Any, line: Line) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        self._stream.write(self._line.around(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for each in lines:
            self.write(each)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def words(measured: Measured) -> str:
    """The line's text."""
    verdict = judge(measured)
    its = verdict.flow
    if its is None:
        return "accel: waiting for batches"
    return f"accel: {its.rate:,.0f} images/s | waiting {its.wait / its.period:.0%} | bottleneck: {verdict.bottleneck}"
