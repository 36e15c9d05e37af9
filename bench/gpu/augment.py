"""Augmenting pipelines beside the plain one: the same photos and crops, and what a policy does to them in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision import transforms as T

from accel.planning.plan import Plan, plan
from accel.planning.stages import Effect, Pass
from bench.gpu.emit import REPEATS, uploaded
from bench.gpu.setting import Setting, batch, in_turns, recorded

POLICIES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda image: image,
    "RandAugment": T.RandAugment(),
    "TrivialAugmentWide": T.TrivialAugmentWide(),
    "AutoAugment": T.AutoAugment(),
    "ColorJitter": T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "GaussianBlur, 23 x 23": T.GaussianBlur(23),
}


def measure(setting: Setting) -> dict[str, Any]:
    """For every policy the whole path and its launches alone, and how many times the plain pipeline's that is.

    Raises:
        AssertionError: values differ from torchvision's.
    """
    paths: dict[str, Callable[[], object]] = {}
    kernels: dict[str, Callable[[], object]] = {}
    found: dict[str, Any] = {}
    for name, policy in POLICIES.items():
        backend, recipes = recorded(setting.photos, setting.device, policy)
        wanted = plan(recipes)
        _check(setting, name, backend.run_on(wanted, setting.device).cpu())
        execution, result = uploaded(backend, wanted, setting.device)
        found[name] = {"launches": execution.launches, "bytes": moved(wanted)}
        paths[name] = lambda backend=backend, recipes=recipes: backend.run_on(plan(recipes), setting.device)  # type: ignore[misc]
        kernels[name] = lambda execution=execution, result=result: [execution.launch() for _ in range(REPEATS)]  # type: ignore[misc]
    for kind, contestants, repeats in (("path", paths, 1), ("kernels", kernels, REPEATS)):
        times = in_turns(contestants, setting.rounds, setting.device)
        plain = times["plain"]["median"]
        for name, each in times.items():
            found[name][f"{kind} ms"] = 1000 * each["median"] / repeats
            found[name][f"{kind}, times plain"] = each["median"] / plain
    return found


def moved(wanted: Plan) -> int:
    """The bytes that the stages of a plan must at least read and write; tables and parameters are left out."""
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


def _check(setting: Setting, name: str, found: torch.Tensor) -> None:
    wanted = batch(setting.photos, POLICIES[name])
    if not torch.equal(found, wanted):
        raise AssertionError(f"{name}: its values are not torchvision's; nothing is reported")
