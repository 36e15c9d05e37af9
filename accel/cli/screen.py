"""Printing for the commands: results to standard output, progress and notes to standard error.

A terminal breaks texts between words at its width; elsewhere a text is one line.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_EVERY, _REDRAWN = 10, 0.1
"""Seconds between two lines of progress where there is no terminal, and between two drawings of a bar."""


class Bar:
    """A progress bar for one step of work; without a total, it shows the time that has passed.

    It is redrawn by calls and not by a thread, because DataLoader forks its workers meanwhile; ``moving``: by a thread.
    Where standard error is no terminal, it prints its title, and every ten seconds a line.
    """

    def __init__(self, title: str, total: int | None = None, *, counted: bool = True, moving: bool = False) -> None:
        """``counted``: whether it shows numbers, or else percents."""
        done = MofNCompleteColumn() if counted else TaskProgressColumn()
        times = (TimeElapsedColumn(),) if total is None else (done, TimeRemainingColumn())
        texts = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1))  # broken between words
        columns, quiet = (texts, BarColumn(20), *times), not err.is_terminal
        self._progress = Progress(
            *columns, console=err, auto_refresh=moving, transient=True, disable=quiet, expand=True
        )
        self._task = self._progress.add_task(title, total=total)
        self._due = self._drawn = 0.0  # when a line may be printed next; when it was drawn last

    def __enter__(self) -> Bar:
        self._progress.start()
        self._line()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def advance(self, count: int = 1) -> None:
        drawn = time.monotonic() >= self._drawn + _REDRAWN
        self._progress.update(self._task, advance=count, refresh=drawn)
        if drawn:
            self._drawn = time.monotonic()
        self._line()

    def say(self, title: str) -> None:
        """Show another title."""
        self._progress.update(self._task, description=title, refresh=True)
        self._line()

    def _line(self) -> None:
        if err.is_terminal or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _EVERY
        task = self._progress.tasks[0]
        done = f": {task.percentage:.0f}%" if task.completed and task.total else ""
        left = f", about {task.time_remaining:.0f} s left" if done and task.time_remaining else ""
        note(f"{task.description}{done}{left}")


def say(text: str, style: str = "") -> None:
    """Print a result that is no table."""
    _print(out, text, style)


def note(text: str) -> None:
    """Print a remark that is not the command's result."""
    _print(err, text, "dim")


def fail(command: str, text: str) -> None:
    """Print why the command stops."""
    _print(err, f"{command}: {text}", "bold red")


def _print(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style), soft_wrap=not console.is_terminal)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a result to a file, making its folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n")
