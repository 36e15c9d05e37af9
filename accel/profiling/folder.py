"""The folder in which each process of ``accel run --profile`` leaves its measurements, for one report on all."""

from __future__ import annotations

import os
from pathlib import Path

from accel.profiling.measured import Measured, merged


def leave(measured: Measured, file: Path) -> None:
    """Replace the file with a process's measurements; a reader finds either the old or the new ones."""
    new = file.with_suffix(".new")
    new.write_text(measured.to_json(), encoding="utf-8")
    os.replace(new, file)


def left(folder: Path) -> Measured | None:
    """The measurements that all processes have left, merged; None if there are none."""
    parts = [Measured.from_json(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    return merged(parts) if parts else None
