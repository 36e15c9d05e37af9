"""The machine and the versions of packages, which figures depend on besides the code."""

from __future__ import annotations

import platform
import warnings
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from PIL import features

import accel
from accel.errors import attempt
from accel.system.cores import found

_PACKAGES = ("torch", "torchvision", "Pillow", "numpy", "numba", "nvImageCodec", "cuda-core", "DALI")
_DISTRIBUTIONS = {
    "nvImageCodec": ("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12"),
    "DALI": ("nvidia-dali-cuda130", "nvidia-dali-cuda120"),
}


def versions() -> dict[str, str | None]:
    """The versions of everything that may change a pixel; None for packages that are not installed."""
    found: dict[str, str | None] = {"accel": accel.__version__, "Python": platform.python_version()}
    for package in _PACKAGES:
        answers = (attempt(metadata.version, name) for name in _DISTRIBUTIONS.get(package, (package,)))
        found[package] = next((version for version in answers if isinstance(version, str)), None)
    return {**found, "libjpeg-turbo (Pillow's)": features.version("libjpeg_turbo")}


def machine() -> dict[str, Any]:
    """The processor, the cores that this process may use and the reason, the cores of each NUMA node, the CUDA devices
    and the system."""
    cores = found()
    return {
        "cpu": _cpu_model(),
        "cores": cores.number,
        "cores by": cores.why,
        "NUMA nodes": numa_nodes(),
        "cuda devices": _cuda_devices(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def numa_nodes(nodes: Path = Path("/sys/devices/system/node")) -> list[str]:
    """The numbers of the cores of each node, such as "node0: 0-31"; none if the system does not tell.

    ``torchrun --numa-binding=node`` binds each rank to the node of its GPU; threads that accel starts stay there.
    """
    lists = sorted(nodes.glob("node[0-9]*/cpulist"), key=lambda path: int(path.parent.name[4:]))
    texts = ((path.parent.name, attempt(path.read_text)) for path in lists)
    return [f"{name}: {text.strip()}" for name, text in texts if isinstance(text, str) and text.strip()]


def _cuda_devices() -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a driver that is too old for this torch: there is no device then
        if not torch.cuda.is_available():
            return []
        return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
