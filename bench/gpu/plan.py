"""The plan of ``python -m bench.gpu``: its parts, and their steps by value; and the files of results, which name what
they were measured with, so that a later call goes on where an earlier one ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.machine import ROOT, commit

PARTS = {
    "start": "bench.gpu.start:measure",
    "sustained": "bench.gpu.sustained:measure",
    "training": "bench.gpu.training:measure",
    "latency": "bench.gpu.latency:measure",
    "decode": "bench.gpu.decode:measure",
    "checks": "bench.gpu.checks:measure",
    "emit": "bench.gpu.kernels:emit",
    "ranks": "bench.gpu.ranks:measure",
    "overlap": "bench.gpu.training:overlap",
    "profile": "bench.gpu.profiled:measure",
    "sink": "bench.gpu.sinking:measure",
    "path": "bench.gpu.path:measure",
    "augment": "bench.gpu.kernels:augment",
}
"""Functions that yield steps, by name of the part."""


class Planned(NamedTuple):
    """A step, and the seconds that it usually takes on an H200 with 16 cores."""

    part: str
    step: str
    seconds: float


PROCESS = 7.0
"""Seconds until the process of a part has begun its first step."""

_ORDER: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("start", 1, ("packages", "backends", "one batch")),
    ("start", 5, ("machine", "device's kernels")),
    ("start", 12, ("host's kernels, by numba",)),
    ("start", 2, ("two epochs of workers, fork",)),
    ("sustained", 11, ("accel, DataLoader, 8 workers",)),
    ("sustained", 14, ("torchvision, DataLoader, 12 workers",)),
    ("sustained", 8, ("accel, DataLoader, 4 workers", "accel, DataLoader, 12 workers", "accel, batches of 64")),
    ("sustained", 8, ("accel, prefetch=2", "accel, prefetch=3", "accel, prefetch=4", "accel, prefetch=6")),
    ("training", 14, ("shufflenet, torchvision, all cores",)),
    ("training", 10, ("shufflenet, accel, exact, 4 workers",)),
    ("training", 14, ("mobilenet, torchvision, all cores",)),
    ("training", 10, ("mobilenet, accel, exact, 4 workers",)),
    ("training", 14, ("resnet50, torchvision, all cores",)),
    ("training", 12, ("resnet50, accel, exact, 4 workers",)),
    ("latency", 4, ("accel.submit, cuda", "accel.submit, cuda, the host decodes", "accel.submit, cpu")),
    ("latency", 4, ("torchvision v1, PIL", "torchvision v2, tensors", "TorchCodec + v2", "nvImageCodec by hand")),
    ("decode", 4, ("crops, 512 at once", "crops by indexes, 512 at once", "photos, 512 at once")),
    ("decode", 1, ("photos, 1 at once", "crops by indexes, 1 at once")),
    ("emit", 3, ("float32, NCHW",)),
    ("checks", 50, ("kernels",)),
    ("checks", 30, ("memcheck",)),
    ("sustained", 8, ("accel, channels_last", "accel, half", "accel, half, before it is sent")),
    ("sustained", 20, ("accel, 20,000 files",)),
    ("sustained", 12, ("DALI, 65% by the hardware", "DALI, 100% by the hardware", "accel, dali, exact=False")),
    ("sustained", 8, ("accel, recipes in memory", "accel, batches of 256", "torchvision on the device")),
    ("ranks", 20, ("two ranks, 4 workers each",)),
    ("profile", 40, ("jpeg_segments",)),
    ("overlap", 25, ("two workers",)),
    ("checks", 50, ("conformance",)),
    ("checks", 140, ("forks, streams, memory",)),
    ("sink", 60, ("shufflenet", "mobilenet", "resnet50")),
    ("path", 5, ("accel, exact, decoded on the device", "accel, exact, the host decodes")),
    ("path", 8, ("torchvision with Pillow, all cores",)),
    ("path", 2, ("by part, ms, the host decodes",)),
    ("profile", 40, ("pass3", "jpeg_synchronise", "jpeg_coefficients")),
    ("training", 10, ("shufflenet, accel, exact, 2 workers", "shufflenet, accel, exact, all cores")),
    ("training", 10, ("mobilenet, accel, exact, 2 workers", "mobilenet, accel, exact, all cores")),
    ("training", 12, ("resnet50, accel, exact, 2 workers", "resnet50, accel, exact, all cores")),
    ("sustained", 8, ("accel, batches of 128", "accel, batches of 1024")),
    ("sustained", 12, ("DALI, 80% by the hardware", "DALI, 0% by the hardware", "DALI's torchvision API")),
    ("sustained", 12, ("TorchCodec on the device", "CV-CUDA")),
    ("emit", 3, ("float16, NCHW", "float16, channels_last", "uint8, channels_last")),
    ("augment", 8, ("plain", "RandAugment", "TrivialAugmentWide")),
    ("augment", 8, ("AutoAugment", "ColorJitter", "GaussianBlur, 23 x 23")),
    ("decode", 2, ("crops, 1 at once", "crops, 32 at once", "crops by indexes, 32 at once", "photos, 32 at once")),
    ("decode", 2, ("crops, 128 at once", "crops by indexes, 128 at once", "photos, 128 at once")),
    ("decode", 4, ("crops, 1024 at once", "crops by indexes, 1024 at once", "photos, 1024 at once")),
    ("decode", 3, ("12 megapixels, 8 at once", "one colour, 12 megapixels", "squares, 12 megapixels")),
    ("decode", 3, ("stripes, 12 megapixels", "noise, 12 megapixels")),
    ("decode", 3, ("noise in RGB, one table for all, 12 megapixels",)),
    ("start", 45, ("two epochs of workers, spawn",)),
    ("checks", 120, ("racecheck", "initcheck", "synccheck")),
    ("checks", 240, ("sweeps",)),
)
PLAN = tuple(Planned(part, step, seconds) for part, seconds, steps in _ORDER for step in steps)
"""Every step, the most valuable first; those of a part that follow each other share a process."""


def chosen(parts: Sequence[str] | None, match: str) -> list[Planned]:
    """The plan's steps of some parts, or all, that have a text in their names."""
    return [each for each in PLAN if each.part in (parts or PARTS) and match in each.step]


def groups(steps: Sequence[Planned]) -> Iterator[tuple[str, list[Planned]]]:
    """Steps that follow each other, by part."""
    for part, some in groupby(steps, lambda each: each.part):
        yield part, list(some)


def card(device: torch.device) -> str:
    """The kind of a device: figures are compared only on one kind."""
    if device.type != "cuda":
        return "host"
    found = torch.cuda.get_device_properties(device)
    return f"{found.name}, {found.multi_processor_count} multiprocessors, {found.total_memory / (1 << 30):.0f} GiB"


def identity(device: torch.device, options: dict[str, Any]) -> dict[str, Any]:
    """What a file's results have in common: the commit, a digest of the code that runs, the card, and the options."""
    return {"commit": commit(), "sources": sources(ROOT), "card": card(device), "options": options}


def sources(root: Path) -> str:
    """A digest of a checkout's code, which differs from its commit's while there are uncommitted changes."""
    found = hashlib.sha256()
    for folder in ("accel", "bench"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".py", ".h", ".cu", ".cpp"):
                found.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return found.hexdigest()[:16]


def place(folder: Path, name: str, wanted: dict[str, Any]) -> Path:
    """The file for a part's results: the one with this identity, or the first name that is free."""
    for number in count(1):
        file = folder / f"{name}{'' if number == 1 else f'.{number}'}.json"
        if not file.exists() or json.loads(file.read_text()).get("identity") == wanted:
            return file
    raise AssertionError


def done(file: Path, versions: dict[str, Any]) -> dict[str, Any]:
    """The results in a file that need not be made again: all but those that lacked a package, if others are installed
    now."""
    if not file.exists():
        return {}
    result = json.loads(file.read_text())
    same = result["versions"] == versions
    return {step: found for step, found in result["steps"].items() if same or "not installed" not in found}
