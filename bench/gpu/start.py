"""The first checks on a GPU: whether all is installed, compiles, gives right values, and works in forked workers."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from typing import Any

import torch

from accel import backend
from accel.backends.cuda import backend as cuda
from accel.planning.plan import plan
from accel.system.native import units
from bench.gpu.setting import Setting, Step, batch, device_seconds, in_turns, recorded, wait
from bench.gpu.training import loop

PACKAGES = ("torch", "torchvision", "numpy", "pillow", "numba", "cuda-core", "cuda-bindings", "pytest", "pytest-xdist")


def measure(setting: Setting) -> Iterator[Step]:
    """Yield small steps, each after those that it needs."""
    yield "packages", _packages
    yield "backends", partial(_backends, setting)
    yield "machine", partial(_machine, setting)
    yield "host's kernels, by numba", partial(_took, lambda: units.ready(units.units()))
    yield "device's kernels", partial(_took, lambda: cuda._Engine(setting.device).device.prepare())
    yield "one batch", partial(_one_batch, setting)
    for method in ("fork", "spawn"):
        yield f"two epochs of workers, {method}", partial(_epochs, setting, method)


def _packages() -> dict[str, Any]:
    found = {each.metadata["Name"].lower(): each.version for each in metadata.distributions()}
    return {name: found.get(name) for name in PACKAGES}


def _backends(setting: Setting) -> dict[str, Any]:
    """List the backends, and why they cannot run.

    Raises:
        RuntimeError: there is no entry point for the cuda backend, or it cannot run.
    """
    found = backend.availability()
    if "cuda" not in found or (setting.device.type == "cuda" and found["cuda"]):
        raise RuntimeError(f"the cuda backend cannot run: {found}")
    return {name: reason or "runs" for name, reason in found.items()}


_QUERY = "name,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,clocks.sm,clocks.max.sm,memory.total"


def _machine(setting: Setting) -> dict[str, Any]:
    """What the system says of its processor and its GPU, and how fast locked memory is copied both ways, by events."""
    found: dict[str, Any] = {}
    for command in (("lscpu",), ("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv"), ("nvidia-smi", "topo", "-m")):
        if shutil.which(command[0]) is not None:
            said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
            found[" ".join(command)] = said.splitlines()
    host = torch.empty(LINKED, dtype=torch.uint8, pin_memory=setting.device.type == "cuda")
    there = torch.empty_like(host, device=setting.device)
    ways: dict[str, Callable[[], object]] = {
        "to the device": lambda: there.copy_(host, non_blocking=True),
        "to the host": lambda: host.copy_(there, non_blocking=True),
    }
    times = in_turns(ways, setting.rounds, setting.device, device_seconds)
    return {**found, **{f"{name}, GB/s": LINKED / took / 1e9 for name, took in times.items()}}


LINKED = 256 << 20  # bytes that are copied


def _took(function: Any) -> dict[str, Any]:
    begin = time.perf_counter()
    function()
    return {"seconds": time.perf_counter() - begin}


def _one_batch(setting: Setting) -> dict[str, Any]:
    """Compare one batch with torchvision's.

    Raises:
        AssertionError: it is not torchvision's.
    """
    photos = setting.photos[:32]
    on_device, recipes = recorded(photos, setting.device)
    if not torch.equal(on_device.run_on(plan(recipes), setting.device).cpu(), batch(photos)):
        raise AssertionError("its values are not torchvision's")
    return {"images": len(photos), "equal": True}


def _epochs(setting: Setting, method: str) -> dict[str, Any]:
    """Compare two epochs of workers with torchvision's; the second ones start after this process has used the device.

    Raises:
        AssertionError: a batch is not torchvision's.
    """
    found = {}
    for backend_name in ("torchvision", "cuda"):
        contestant = loop(
            setting, 16, 4, 2, backend_name, {}, multiprocessing_context=method, timeout=0.4 * setting.limit
        )
        with contestant.in_force():
            found[backend_name] = [batch[0].cpu() for epoch in (0, 1) for batch in contestant.epoch(epoch)]
    wait(setting.device)
    for wanted, made in zip(*found.values(), strict=True):
        if not torch.equal(wanted, made):
            raise AssertionError("its values are not torchvision's")
    return {"batches": len(found["cuda"]), "equal": True}
