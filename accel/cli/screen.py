"""Printing for the commands: results to standard output, progress and notes to standard error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


class Bar:
    """A progress bar for one step of work; without a total, it shows the time that has passed.

    It is redrawn by calls and not by a thread, because DataLoader forks its workers meanwhile.
    """

    def __init__(self, title: str, total: int | None = None) -> None:
        counted = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        columns = (TextColumn("{task.description}"), *((TimeElapsedColumn(),) if total is None else counted))
        quiet = not err.is_terminal
        self._progress = Progress(*columns, console=err, auto_refresh=False, transient=True, disable=quiet)
        self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def advance(self, count: int = 1) -> None:
        self._progress.update(self._task, advance=count, refresh=True)

    def say(self, title: str) -> None:
        """Show another title."""
        self._progress.update(self._task, description=title, refresh=True)


def note(text: str) -> None:
    """Print a remark that is not the command's result."""
    err.print(text, style="dim", markup=False)


def fail(command: str, text: str) -> None:
    """Print why the command stops."""
    err.print(f"{command}: {text}", style="bold red", markup=False, soft_wrap=True)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a result to a file, making its folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n")
