"""Computing late values: recipes to pixels or tensors, on the backend their sources were made under."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch

from accel.backend import AcceleratorBackend
from accel.planning.plan import plan
from accel.sources.recipe import Recipe
from accel.switch import Selection
from accel.system import counters, memory
from accel.system.memory import Allocate


def pixels(recipe: Recipe) -> npt.NDArray[np.uint8]:
    """One image's pixels, uint8 [height, width, channels], computed on the host.

    Raises:
        DecodeError: the file cannot be decoded.
    """
    values = tensors([recipe], interleaved=True)
    return values[0].permute(1, 2, 0).numpy()


def tensors(
    recipes: Sequence[Recipe], *, interleaved: bool = False, allocate: Allocate = memory.results.empty
) -> torch.Tensor:
    """Images that come out alike, as one plain tensor [images, channels, height, width] on the host.

    Args:
        interleaved: strided as torch's channels_last.
        allocate: makes the memory for the result.

    Raises:
        DecodeError: a file cannot be decoded, and its backend's ``on_error`` is "raise".
    """
    counters.count(counters.IMAGES, len(recipes))
    batch = plan(recipes, interleaved=interleaved)
    return selection_of(recipes).host.run(batch, allocate)


def several(
    batches: Sequence[tuple[Sequence[Recipe], bool]], allocate: Allocate = memory.results.empty
) -> list[torch.Tensor | Exception]:
    """For several (recipes, interleaved) what ``tensors`` gives, or raises, computed together."""
    results: dict[int, torch.Tensor | Exception] = {}
    places: dict[Selection, list[int]] = {}
    for place, (recipes, _) in enumerate(batches):
        counters.count(counters.IMAGES, len(recipes))
        places.setdefault(selection_of(recipes), []).append(place)
    for selection, own in places.items():
        plans = [plan(batches[place][0], interleaved=batches[place][1]) for place in own]
        results.update(zip(own, selection.host.run_all(plans, allocate), strict=True))
    return [results[place] for place in range(len(batches))]


def tensors_on(device: torch.device, recipes: Sequence[Recipe], *, interleaved: bool = False) -> torch.Tensor:
    """Images of an accelerator backend that come out alike, as one plain tensor on ``device``.

    Launched on torch's current stream there, which is not waited for.

    Raises:
        DecodeError: as ``tensors`` does.
    """
    counters.count(counters.IMAGES, len(recipes))
    batch = plan(recipes, interleaved=interleaved)
    return cast(AcceleratorBackend, selection_of(recipes).backend).run_on(batch, device)


def selection_of(recipes: Sequence[Recipe]) -> Selection:
    """The selection of the images, which is one for all that are stacked."""
    return recipes[0].source.selection


def alike(recipes: Sequence[Recipe]) -> bool:
    """Whether the images run on one backend, so that they can be one program."""
    first = recipes[0].source.selection
    return all(recipe.source.selection == first for recipe in recipes)
