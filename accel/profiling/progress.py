"""The live line: images a second, how much of the time is waiting, and what holds the training back."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from accel.profiling.measured import Measured
from accel.profiling.verdict import judge


class Line:
    """A line that is refreshed in place in a terminal, and is nothing elsewhere.

    It is drawn by ``update``'s caller and not by a thread: DataLoader forks its workers meanwhile. What the script
    prints appears above it.
    """

    def __init__(self, file: Any = None) -> None:
        """``file``: where to draw, standard error if None."""
        self._file = sys.stderr if file is None else file
        self._live: Live | None = None
        self._closed = not self._file.isatty()

    def update(self, measured: Measured) -> None:
        """Show what the last batches say."""
        if self._closed:
            return
        shown = Text(words(measured), no_wrap=True, overflow="ellipsis")
        if self._live is None:
            console = Console(file=self._file, highlight=False)
            self._live = Live(shown, console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(shown, refresh=True)

    def close(self) -> None:
        """Take the line away."""
        self._closed = True
        if self._live is not None:
            self._live.stop()
            self._live = None


def words(measured: Measured) -> str:
    """The line's text."""
    verdict = judge(measured)
    its = verdict.flow
    if its is None:
        return "accel: waiting for batches"
    return f"accel: {its.rate:,.0f} images/s | waiting {its.wait / its.period:.0%} | bottleneck: {verdict.bottleneck}"
