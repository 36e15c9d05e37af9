"""Measuring the whole path: from JPEG bytes in host memory to a normalised tensor on the device, with waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from accel.planning.plan import plan
from accel.system.cores import cores
from bench.gpu.setting import Setting, Step, batch, rate, recorded, transformed, wait

CONTESTANTS: dict[str, dict[str, Any]] = {
    "accel, exact, decoded on the device": {},
    "accel, exact, the host decodes": {"decode": "host"},
}


def measure(setting: Setting) -> Iterator[Step]:
    """Every contestant's time for a batch, and images per second."""
    for name, options in CONTESTANTS.items():
        yield name, partial(_accel, setting, options)
    yield "torchvision with Pillow, all cores", partial(_pillow, setting)
    yield "by part, ms, the host decodes", partial(_by_part, setting)


def _accel(setting: Setting, options: dict[str, Any]) -> dict[str, Any]:
    """Time accel with some options.

    Raises:
        AssertionError: the values differ from torchvision's.
    """
    backend, recipes = recorded(setting.photos, setting.device, **options)
    wanted = batch(setting.photos)
    if not torch.equal(backend.run_on(plan(recipes), setting.device).cpu(), wanted):
        raise AssertionError("its values are not torchvision's; nothing is reported")
    return rate(lambda: backend.run_on(plan(recipes), setting.device), len(wanted), setting)


def _pillow(setting: Setting) -> dict[str, Any]:
    with ThreadPoolExecutor(cores()) as pool:
        made = lambda: torch.stack(list(pool.map(transformed, setting.photos))).to(setting.device)  # noqa: E731
        return {**rate(made, len(setting.photos), setting), "cores": cores()}


def _by_part(setting: Setting) -> dict[str, float]:
    backend, recipes = recorded(setting.photos, setting.device, decode="host")
    _parts(setting, backend, recipes)  # only the second run counts
    return _parts(setting, backend, recipes)


def _parts(setting: Setting, backend: Any, recipes: Any) -> dict[str, float]:
    """The milliseconds of each part if the host decodes, waiting for the device after every part."""
    engine, device = backend._engine(setting.device), setting.device
    found: dict[str, float] = {}

    def timed(name: str, function: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        value = function()
        wait(device)
        found[name] = 1000 * (time.perf_counter() - start)
        return value

    program = timed("plan", lambda: plan(recipes))
    with engine.device.enter():
        result = program.empty(lambda shape, dtype: torch.empty(tuple(shape), dtype=dtype, device=device))
        execution = timed("program", lambda: backend._finish(program, engine, result, "host"))

        def decode(numbered: tuple[int, Any]) -> None:
            backend._decode(numbered[1], 1, execution, numbered[0])

        timed("decode on the host", lambda: backend._parallel.each(enumerate(program.decodes), decode))
        timed("upload and kernels", execution.launch)
    timed("recording, in a worker", lambda: recorded(setting.photos, device))
    timed("all but recording", lambda: backend.run_on(plan(recipes), device))
    return found
