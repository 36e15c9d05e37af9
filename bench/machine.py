"""Results: command-line options, result files, and their provenance (machine and versions)."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from accel.cli import machine, screen
from accel.cli.arguments import WrongUsage, at_least
from accel.errors import attempt

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


def provenance() -> dict[str, Any]:
    """Date, commit, machine and versions."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "uncommitted changes": bool(_git("status", "--porcelain")),
        "machine": machine.machine(),
        "versions": versions(),
    }


_BESIDE = {"TorchCodec": "torchcodec", "CV-CUDA": "cvcuda-cu13"}


def versions() -> dict[str, str | None]:
    """The versions of what may change accel's pixels, and of other libraries; None for what is not installed."""
    found = {name: attempt(metadata.version, distribution) for name, distribution in _BESIDE.items()}
    return machine.versions() | {name: each if isinstance(each, str) else None for name, each in found.items()}


def commit() -> str | None:
    """This checkout's commit; None if it is none, or git is missing."""
    return _git("rev-parse", "HEAD")


def _git(*args: str) -> str | None:
    """Ask git about this checkout; None if it is none, or git is missing."""
    try:
        run = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()


def parser(
    module: str, description: str, *, out: str, rounds: int, images: int | None = None, least: tuple[int, int] = (1, 1)
) -> argparse.ArgumentParser:
    """A parser with the options common to all commands.

    Args:
        module: the command's module.
        out: the result file in ``results``.
        rounds, images: the defaults; None for all images.
        least: the least numbers of images and rounds.
    """
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    many = f"use N images of it [{images or 'all'}]"
    made.add_argument("--data", type=Path, metavar="DIR", help="a folder of images [made for the run]")
    made.add_argument("--images", type=at_least(least[0]), default=images, metavar="N", help=many)
    made.add_argument("--rounds", type=at_least(least[1]), default=rounds, metavar="N", help="in turns [%(default)s]")
    made.add_argument("--out", type=Path, default=RESULTS / out, metavar="FILE", help=f"[bench/results/{out}]")
    return made


def comma_separated(text: str) -> list[str]:
    """An argparse type: a list of words, separated by commas."""
    return text.split(",")


def known(what: str, names: Sequence[str], registry: dict[str, Any]) -> dict[str, Any]:
    """The registry's entries with these names, or all if there are no names, in its order.

    Raises:
        WrongUsage: there is no entry of that name.
    """
    for name in names:
        if name not in registry:
            raise WrongUsage(f"no such {what}: {name}; there are {', '.join(registry)}")
    return {name: each for name, each in registry.items() if name in names or not names}


def write(out: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Write a result with its provenance; return all that was written."""
    whole = {**provenance(), **result}
    screen.write_json(out, whole)
    screen.note(f"written to {out}")
    return whole
