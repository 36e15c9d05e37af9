"""Requests so small that the host computes them sooner than a device, with the same values; see ``accel.warm``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from accel.planning.order import has_tail
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, selection_of

learned: dict[tuple[Selection, torch.device], int] = {}
"""The most images of a request that the host computes for a device."""


def on_host(recipes: Sequence[Recipe], device: torch.device) -> bool:
    """Whether the host computes these images: they are few, and a device would give the same bits.

    torchvision's own kernels may round differently on a device, and so may a backend that need not be exact.
    """
    if not learned:
        return False
    selection = selection_of(recipes)
    few = len(recipes) <= learned.get((selection, device), 0)
    return few and selection.options.exact and not has_tail(recipes)


def describe(recipes: Sequence[Recipe]) -> list[str]:
    """Lines for ``accel.explain``: what would be computed on the host for a device."""
    return [
        f"accel.submit for {device}: the host computes up to {_images(most)}, sooner than the device by accel.warm"
        + (", but not these, which torchvision's kernels finish" if has_tail(recipes) else "")
        for (selection, device), most in list(learned.items())
        if most and selection == selection_of(recipes)
    ]


def _images(count: int) -> str:
    return f"{count} image{'s' * (count != 1)}"
