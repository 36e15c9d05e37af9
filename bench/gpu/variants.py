"""Variants of the kernels and their launching: copies of the checkout with one number changed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bench.machine import ROOT

VARIANTS = {
    "subsequence": (
        "accel/backends/cuda/jpeg/picture.h",
        r"(constexpr int PIECES = )\d+(;.*\nconstexpr int PIECE = )\d+(?=;)",
        r"\g<1>{pieces}\g<2>{piece}",
    ),
    "blocks": ("accel/backends/cuda/shim.h", r"(?<=__launch_bounds__\(THREADS, )\d+(?=\))", "{}"),
    "carveout": (
        "accel/backends/cuda/device.py",
        r"\w+\.get_kernel\(\w+\)",
        r"__import__('{here}').gpu.variants.carved(\g<0>, {})",
    ),
    "launchers": ("accel/runtime/prefetch.py", r"(?<=\n_LAUNCHERS = )\d+", "{}"),
}
"""By name: the file, the pattern of the only place that has the number, and its replacement. The numbers are the bits
that a thread of the decoder begins with, of which a piece is at most half; the blocks that a multiprocessor must hold;
the percentage of its memory that is no cache; and the threads that launch."""
_TAKEN = ("accel", "bench", "rig", "tests", "pyproject.toml")


def parsed(text: str) -> tuple[str, int]:
    """Parse ``name=number``.

    Raises:
        ValueError: no such variant.
    """
    name, _, number = text.partition("=")
    if name not in VARIANTS:
        raise ValueError(f"no such variant: {name}")
    return name, int(number)


def made(chosen: Mapping[str, int], folder: Path) -> Path:
    """Copy the checkout to an empty folder with these numbers; its kernels are compiled anew.

    Raises:
        LookupError: the sources do not have such a number in just one place.
    """
    for name in _TAKEN:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    if (ROOT / ".git").exists():
        (folder / ".git").symlink_to(ROOT / ".git")  # results name the commit, and say that it was changed
    for name, number in chosen.items():
        file, pattern, written = VARIANTS[name]
        piece = max(min(512, number // 2), 1)
        replacement = written.format(number, here=__name__, pieces=number // piece, piece=piece)
        text, times = re.subn(pattern, replacement, (folder / file).read_text())
        if times != 1:
            raise LookupError(f"{file} has {times} places for {name}")
        (folder / file).write_text(text)
    return folder


def carved(kernel: Any, percent: int) -> Any:
    """Set the preferred percentage of a multiprocessor's memory that is shared memory for a loaded kernel; return it.

    Raises:
        RuntimeError: the driver refuses.
    """
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    status, device = driver.cuDeviceGet(torch.cuda.current_device())
    if not status:
        (status,) = driver.cuKernelSetAttribute(attribute, percent, kernel.handle, device)
    if status:
        raise RuntimeError(f"carveout={percent}: {status}")
    return kernel
