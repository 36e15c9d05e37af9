"""The folder in which each process of ``accel run --profile`` leaves what it has measured, for one report on all."""

from __future__ import annotations

import os
from pathlib import Path

from accel.profiling.measured import Measured, merged


def leave(measured: Measured, file: Path) -> None:
    """Write what a process has measured so far in place of what it had: whoever reads finds one of the two."""
    new = file.with_suffix(".new")
    new.write_text(measured.to_json(), encoding="utf-8")
    os.replace(new, file)


def left(folder: Path) -> Measured | None:
    """What all processes have left, as one; None if none has."""
    parts = [Measured.from_json(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    return merged(parts) if parts else None
