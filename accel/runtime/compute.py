"""Recipes to pixels or tensors, computed on the backend their sources were made under.

A file that cannot be decoded raises DecodeError here, and so wherever values are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accel.backend import AcceleratorBackend, backend_of, host_of, supports_all
from accel.codec import stream_index
from accel.errors import DecodeError, attempt, only
from accel.planning import columns
from accel.planning.order import has_tail
from accel.planning.plan import Plan, plan
from accel.planning.torch_tail import TailedPlans, tailed_plans
from accel.recipes.arrived import Arrived
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source, selection_of, ways_of
from accel.recipes.rows import Rows
from accel.recipes.sources import Files, Sources
from accel.runtime import first_pass, sharing, torch_ops
from accel.runtime.memo import cached, results
from accel.runtime.parallel import ParallelFor
from accel.runtime.worker_batches import from_worker
from accel.system import counters, memory, worker_threads
from accel.system.memory import Allocate


def pixels(recipe: Recipe) -> npt.NDArray[np.uint8]:
    """One image's pixels, uint8 [height, width, channels], computed on the host."""
    values = tensors([recipe], interleaved=True)
    return values[0].permute(1, 2, 0).numpy()


def tensors(
    recipes: Sequence[Recipe], *, interleaved: bool = False, allocate: Allocate = memory.results.empty
) -> torch.Tensor:
    """Compute images of one shape and dtype as one plain tensor [images, channels, height, width] on the host.

    Args:
        interleaved: strided as torch's channels_last.
        allocate: returns the memory for the result.

    Raises:
        DecodeError: a file cannot be decoded, and its backend's ``on_error`` is "raise".
    """
    return only(several([(recipes, interleaved)], allocate))


def several(
    batches: Sequence[tuple[Sequence[Recipe], bool]], allocate: Allocate = memory.results.empty, *, counts: bool = True
) -> list[torch.Tensor | Exception]:
    """Compute several (recipes, interleaved) together; for each the result of ``tensors``, or its error.

    ``counts``: whether ``accel.stats()`` counts the images.
    """
    batches = [(each.recipes if isinstance(each, Arrived) else each, interleaved) for each, interleaved in batches]
    for recipes, _ in batches if counts else ():
        counters.images(ways_of(recipes))
    if any(_of_cache(recipes) for recipes, _ in batches):
        batches = [
            (results.applied(each, host_of(selection_of(each)), on_host, pixels), interleaved)
            for each, interleaved in batches
        ]
    places: dict[tuple[Selection, bool], list[int]] = {}
    done: dict[int, torch.Tensor | Exception] = {}
    resolved: Sequence[Sequence[Recipe] | Exception] = [recipes for recipes, _ in batches]
    tails = [has_tail(recipes) for recipes, _ in batches]
    if True in tails:
        resolved = _with_pixels([recipes for recipes, _ in batches])
        tails = [isinstance(recipes, Exception) or has_tail(recipes) for recipes in resolved]
    for place, (each, tailed) in enumerate(zip(resolved, tails, strict=True)):
        if isinstance(each, Exception):
            done[place] = each
        else:
            places.setdefault((selection_of(each), tailed), []).append(place)
    for (selection, tailed), own in places.items():
        some: Any = [(resolved[place], batches[place][1]) for place in own]
        if tailed:
            made = _finished(some, selection, allocate)
        else:
            made = on_host(selection, [_host_plan(*each) for each in some], allocate)
        done.update(zip(own, made, strict=True))
    return [done[place] for place in range(len(batches))]


def _of_cache(recipes: Sequence[Recipe]) -> bool:
    """Whether a cache may have entries of the images: one is in use, or was when they were opened."""
    sources = recipes.sources if isinstance(recipes, Rows) else [recipes[0].source]
    if isinstance(sources, Sources):
        return isinstance(sources, Files) and (cached.in_use or bool(sources.cached))
    return cached.in_use or sources[0].cached is not None


def _host_plan(recipes: Sequence[Recipe], interleaved: bool) -> Plan:
    if not isinstance(recipes, Rows):
        recipes = first_pass.together(recipes, host_of(selection_of(recipes)), on_host)
    return _plan(recipes, interleaved)


def _plan(recipes: Sequence[Recipe], interleaved: bool) -> Plan:
    planned = columns.plan(recipes, interleaved=interleaved) if isinstance(recipes, Rows) else None
    return planned or plan(recipes, interleaved=interleaved)


def on_host(
    selection: Selection, plans: Sequence[Plan], allocate: Allocate = memory.results.empty
) -> list[torch.Tensor | Exception]:
    """Run plans on the host backend of a selection; return for each its result, or its error."""
    global _last
    if _last[0] is not selection:  # finding the backend by its options takes longer
        _last = selection, host_of(selection), supports_all(host_of(selection))
    _, host, alone = _last
    try:
        return host.run_all(plans, allocate) if alone else sharing.run_all(host, plans, allocate)
    finally:
        stream_index.flush()
        if cached.in_use:
            cached.flush(if_due=True)


_last: tuple[Selection | None, Any, bool] = None, None, False


def tensors_on(device: torch.device, recipes: Sequence[Recipe], *, interleaved: bool = False) -> torch.Tensor:
    """Compute images of one shape and dtype on an accelerator backend, as one plain tensor on ``device``.

    Launched on torch's current stream there, which is not waited for.
    """

    def run(_: Selection, plans: Sequence[Plan]) -> list[torch.Tensor | Exception]:
        return [attempt(lambda plan: _run_on(backend, plan, device).cpu(), each) for each in plans]

    counters.images(ways_of(recipes))
    backend: Any = backend_of(selection_of(recipes))
    if isinstance(recipes, Arrived):
        made = from_worker(recipes, interleaved, lambda plan: _run_on(backend, plan, device))
        if made is not None:
            return made
        recipes = recipes.recipes
    if _of_cache(recipes):
        recipes = results.applied(recipes, backend, run, pixels)
    if not has_tail(recipes):
        return _run_on(backend, _plan(recipes, interleaved), device)
    if any(recipe.source.origin is not None for recipe in recipes):
        counters.fallback("tensors that became Pillow images again were computed on the host up to there")
    whole = tailed_plans(only(_with_pixels([recipes])))
    _count(whole)
    parts = []
    for number, each in enumerate(whole.plans):
        try:
            parts.append(_run_on(backend, each, device))
        except DecodeError as error:
            raise _placed(error, whole, number) from error.__cause__
    return torch_ops.on_device(whole, parts, interleaved)


def _run_on(backend: AcceleratorBackend, plan: Plan, device: torch.device) -> torch.Tensor:
    try:
        with worker_threads.on_device():
            return sharing.run_on(backend, plan, device)
    finally:
        stream_index.flush()
        if cached.in_use:
            cached.flush(if_due=True)


# -- images that torchvision's kernels finish ---------------------------------------------------------------


def _finished(
    batches: Sequence[tuple[Sequence[Recipe], bool]], selection: Selection, allocate: Allocate
) -> list[torch.Tensor | Exception]:
    """Compute batches that end with torchvision's kernels; the plans of all of them are run together."""
    tailed = [attempt(tailed_plans, recipes) for recipes, _ in batches]
    plans = [each for whole in tailed if isinstance(whole, TailedPlans) for each in whole.plans]
    made = iter(on_host(selection, plans))
    results: dict[int, torch.Tensor | Exception] = {}
    ready: dict[int, tuple[TailedPlans, list[torch.Tensor], bool]] = {}
    for place, (whole, (_, interleaved)) in enumerate(zip(tailed, batches, strict=True)):
        if isinstance(whole, Exception):
            results[place] = whole
            continue
        values: list[torch.Tensor] = []
        failed: list[Exception] = []
        for number, each in enumerate(islice(made, len(whole.plans))):
            if isinstance(each, Exception):
                failed.append(_placed(each, whole, number) if isinstance(each, DecodeError) else each)
            else:
                values.append(each)
        if failed:
            results[place] = min(failed, key=lambda error: getattr(error, "position", None) or 0)
        else:
            _count(whole)
            ready[place] = whole, values, interleaved
    parallel = _parallel(getattr(selection.options, "threads", "auto"))
    finished = torch_ops.on_host([*ready.values()], allocate, parallel) if ready else []
    results.update(zip(ready, finished, strict=True))
    return [results[place] for place in range(len(batches))]


def _count(whole: TailedPlans) -> None:
    counters.count(counters.KERNELS, sum(bool(tail.kernels) for tail in whole.tails))


@cache
def _parallel(threads: int | str) -> ParallelFor:
    return ParallelFor(threads, "accel-kernels")


def _placed(error: DecodeError, whole: TailedPlans, number: int) -> DecodeError:
    """The error of a plan, with the image's position in the whole batch."""
    if error.position is None or len(whole.plans) == 1:
        return error
    position = whole.owners[whole.places.index((number, error.position))]
    source = next(
        each.source
        for each in whole.plans[number].decodes
        if any(item.position == error.position for item in each.items)
    )
    return located(error, source, position, len(whole.tails))


def located(error: DecodeError, source: Source, position: int, count: int) -> DecodeError:
    """The error of a source, with its position among ``count``."""
    reason = error.__cause__ if isinstance(error.__cause__, DecodeError) else error
    placed = type(error)(
        f"{source.name}: {reason}" + (f" (image {position} of a batch of {count})" if count > 1 else "")
    )
    placed.position, placed.__cause__ = position, error.__cause__
    return placed


def _with_pixels(batches: Sequence[Sequence[Recipe]]) -> list[Sequence[Recipe] | Exception]:
    """The recipes of batches, with pixels in place of sources that are lazy themselves; an error if these have one."""
    own = [[] if isinstance(each, Rows) and not each.of_lazy_pixels() else each for each in batches]
    lazy = {id(source): source for each in own for source, _ in each if source.origin is not None}
    if not lazy:
        return list(batches)
    made = several([((source.origin,), True) for source in lazy.values() if source.origin], counts=False)
    pixels: dict[int, Source | Exception] = {}
    for (key, source), result in zip(lazy.items(), made, strict=True):
        if isinstance(result, Exception):
            pixels[key] = result
        else:
            data = result[0].permute(1, 2, 0).numpy().tobytes()
            pixels[key] = Source(data, source.header, source.name, source.selection)
    return [attempt(_replaced, some, pixels) if some else each for each, some in zip(batches, own, strict=True)]


def _replaced(recipes: Sequence[Recipe], pixels: Mapping[int, Source | Exception]) -> list[Recipe]:
    replaced = []
    for position, (source, steps) in enumerate(recipes):
        found = pixels.get(id(source), source)
        if isinstance(found, Exception):
            raise located(found, source, position, len(recipes)) if isinstance(found, DecodeError) else found
        replaced.append(Recipe(found, steps))
    return replaced
