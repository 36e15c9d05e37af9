"""The kernels alone: what part of the device's copy bandwidth they reach for the bytes that they must move."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from accel.backends.cuda.execute import Execution
from accel.backends.cuda.lowering import schedule_of
from accel.planning.plan import Plan
from accel.planning.plan import plan as planned
from accel.runtime import read
from bench.gpu.setting import Setting, in_turns, recorded

REPEATS = 10


def measure(setting: Setting) -> dict[str, Any]:
    """Launches over pixels that are on the device, for each dtype and layout, beside a copy of as many bytes."""
    found = {}
    for name, dtype, interleaved in (
        ("float32, NCHW", torch.float32, False),
        ("float16, NCHW", torch.float16, False),
        ("float16, channels_last", torch.float16, True),
        ("uint8, channels_last", torch.uint8, True),
    ):
        found[name] = _one(setting, dtype, interleaved)
    return found


def uploaded(backend: Any, plan: Plan, device: torch.device) -> tuple[Execution, torch.Tensor]:
    """A plan's launches, all that they need sent to the device, and its result, which ``launch`` makes."""
    engine = backend._engine(device)
    with engine.device.enter():
        result = plan.empty(lambda shape, dtype: torch.empty(tuple(shape), dtype=dtype, device=device))
        execution = Execution(schedule_of(plan, [None] * len(plan.decodes)), engine.device, engine.pool)
        for number, wanted in enumerate(plan.decodes):
            pixels = read.pixels(wanted, plan.shape[0], backend.options)
            np.copyto(execution.pixels(number, pixels.size), pixels.reshape(-1))
        for fill in execution.sent():
            fill()
        execution.upload(result)
    return execution, result


def _one(setting: Setting, dtype: torch.dtype, interleaved: bool) -> dict[str, Any]:
    backend, recipes = recorded(setting.photos, setting.device)
    plan = planned(recipes)
    tables = {id(item.table): item.table.to(dtype) for wanted in plan.decodes for item in wanted.items}
    decodes = tuple(
        wanted._replace(items=tuple(item._replace(table=tables[id(item.table)]) for item in wanted.items))
        for wanted in plan.decodes
    )
    plan = plan._replace(dtype=dtype, interleaved=interleaved, decodes=decodes)
    execution, result = uploaded(backend, plan, setting.device)
    with backend._engine(setting.device).device.enter():
        moved = sum(w.box[2] * w.box[3] * w.channels for w in plan.decodes) + result.numel() * result.itemsize
        source = torch.zeros(moved // 2, dtype=torch.uint8, device=setting.device)
        target = torch.empty_like(source)

        def launches() -> None:
            for _ in range(REPEATS):
                execution.launch()

        def copies() -> None:
            for _ in range(REPEATS):
                target.copy_(source)

        times = in_turns({"kernels": launches, "copy": copies}, setting.rounds, setting.device)
    kernels, copy = (times[name]["median"] / REPEATS for name in ("kernels", "copy"))
    return {
        "bytes": moved,
        "kernels ms": 1000 * kernels,
        "kernels GB/s": moved / kernels / 1e9,
        "copy GB/s": moved / copy / 1e9,
        "share of copy bandwidth": copy / kernels,
    }
