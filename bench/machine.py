"""Where and with what a result was measured."""

from __future__ import annotations

import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from accel.cli import machine

ROOT = Path(__file__).resolve().parent.parent


def provenance() -> dict[str, Any]:
    """Date, commit, machine and versions."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted changes": bool(_git("status", "--porcelain")),
        "machine": machine.machine(),
        "versions": machine.versions(),
    }


def _git(*args: str) -> str | None:
    """Ask git about this checkout; None where it is none, or there is no git."""
    try:
        run = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()
