"""Measuring the kernels alone: the part of the device's copy bandwidth that they reach for the bytes that they must
move; and augmenting pipelines beside the plain one, with the same photos and crops and a policy in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torchvision import transforms as T

from accel.backends.cuda.compile import KERNELS
from accel.backends.cuda.execution import Execution
from accel.planning.plan import Plan, plan
from accel.planning.stages import Effect, Pass
from accel.runtime import read
from bench.gpu.setting import Clock, Setting, Step, batch, device_seconds, in_turns, recorded, seconds

REPEATS = 10


def emit(setting: Setting) -> Iterator[Step]:
    """Time launches on pixels that are on the device, for each dtype and layout, beside a copy of as many bytes."""
    for dtype, interleaved in ((torch.float32, 0), (torch.float16, 0), (torch.float16, 1), (torch.uint8, 1)):
        name = f"{str(dtype).removeprefix('torch.')}, {('NCHW', 'channels_last')[interleaved]}"
        yield name, partial(_one, setting, dtype, bool(interleaved))


def uploaded(backend: Any, program: Plan, device: torch.device) -> tuple[Execution, torch.Tensor]:
    """A plan's execution, with everything sent to the device, and its result, which its launches compute."""
    engine = backend._engine(device)
    with engine.device.enter():
        result = program.empty(lambda shape, dtype: torch.empty(tuple(shape), dtype=dtype, device=device))
        execution = backend._finish(program, engine, result, "host")
        for number, wanted in enumerate(program.decodes):
            pixels = read.pixels(wanted, program.shape[0], backend.options)
            np.copyto(execution.pixels(number, pixels.size), pixels.reshape(-1))
        execution.launch()
    return execution, result


def _one(setting: Setting, dtype: torch.dtype, interleaved: bool) -> dict[str, Any]:
    backend, recipes = recorded(setting.photos, setting.device)
    program = plan(recipes)
    tables = {id(item.table): item.table.to(dtype) for wanted in program.decodes for item in wanted.items}
    decodes = tuple(
        wanted._replace(items=tuple(item._replace(table=tables[id(item.table)]) for item in wanted.items))
        for wanted in program.decodes
    )
    program = program._replace(dtype=dtype, interleaved=interleaved, decodes=decodes)
    execution, result = uploaded(backend, program, setting.device)
    device = backend._engine(setting.device).device
    with device.enter():
        moved = sum(w.box[2] * w.box[3] * w.channels for w in program.decodes) + result.numel() * result.itemsize
        source = torch.zeros(moved // 2, dtype=torch.uint8, device=setting.device)
        target = torch.empty_like(source)

        def launches() -> None:
            for _ in range(REPEATS):
                device.launch_all(execution.work.launches)

        def copies() -> None:
            for _ in range(REPEATS):
                target.copy_(source)

        times = in_turns({"kernels": launches, "copy": copies}, setting.rounds, setting.device, device_seconds)
    kernels, copy = (times[name] / REPEATS for name in ("kernels", "copy"))
    return {
        "bytes": moved,
        "kernels ms": 1000 * kernels,
        "kernels GB/s": moved / kernels / 1e9,
        "copy GB/s": moved / copy / 1e9,
        "share of copy bandwidth": copy / kernels,
    }


POLICIES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda image: image,
    "RandAugment": T.RandAugment(),
    "TrivialAugmentWide": T.TrivialAugmentWide(),
    "AutoAugment": T.AutoAugment(),
    "ColorJitter": T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "GaussianBlur, 23 x 23": T.GaussianBlur(23),
}


def augment(setting: Setting) -> Iterator[Step]:
    """Time every policy's whole path and its launches alone, also as multiples of the plain pipeline's times."""
    for name in POLICIES:
        yield name, partial(_policy, setting, name)


def _policy(setting: Setting, name: str) -> dict[str, Any]:
    """Time one policy beside the plain pipeline.

    Raises:
        AssertionError: values differ from torchvision's.
    """
    paths: dict[str, Callable[[], object]] = {}
    kernels: dict[str, Callable[[], object]] = {}
    found: dict[str, Any] = {}
    for each in dict.fromkeys(("plain", name)):
        backend, recipes = recorded(setting.photos, setting.device, POLICIES[each])
        wanted = plan(recipes)
        if not torch.equal(backend.run_on(wanted, setting.device).cpu(), batch(setting.photos, POLICIES[each])):
            raise AssertionError(f"{each}: its values are not torchvision's; nothing is reported")
        execution, result = uploaded(backend, wanted, setting.device)
        found = {
            "launches": [KERNELS[number] for number in execution.work.launches[:, 0].tolist()],
            "bytes": moved(wanted),
        }
        paths[each] = lambda backend=backend, recipes=recipes: backend.run_on(plan(recipes), setting.device)  # type: ignore[misc]
        again = backend._engine(setting.device).device.launch_all
        kernels[each] = lambda execution=execution, result=result, again=again: [  # type: ignore[misc]
            again(execution.work.launches) for _ in range(REPEATS)
        ]
    rows: tuple[tuple[str, Any, Clock, int], ...] = (
        ("path", paths, seconds, 1),
        ("kernels", kernels, device_seconds, REPEATS),
    )
    for kind, contestants, clock, repeats in rows:
        times = in_turns(contestants, setting.rounds, setting.device, clock)
        found[f"{kind} ms"] = 1000 * times[name] / repeats
        found[f"{kind}, times plain"] = times[name] / times["plain"]
    return found


def moved(wanted: Plan) -> int:
    """The least bytes that the stages of a plan must read and write, without tables and parameters."""
    count, channels, height, width = wanted.shape
    total = count * channels * height * width * wanted.dtype.itemsize
    for each in wanted.decodes:
        for item in each.items:
            (rows, columns), channels = each.box[2:], each.channels
            for stage in item.stages[:-1]:
                if isinstance(stage, Pass) and not stage._replace(levels=None).changes((rows, columns)):
                    continue  # part of the stage before it
                total += rows * columns * channels
                if isinstance(stage, Effect):
                    channels = stage.output_channels
                rows, columns = stage.output_size
                if not (isinstance(stage, Effect) and stage.kind == "statistic"):  # that writes a table
                    total += rows * columns * channels
            total += rows * columns * channels
    return total
