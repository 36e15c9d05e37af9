"""Plans, and torchvision's kernels that finish their images.

The steps that torchvision runs act on the results of the others (bases). These come from as few plans as possible: one
for all images whose bases have the same shape and dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from accel.ops.memory_layout import Layout
from accel.planning import layouts
from accel.planning.order import Steps, parts
from accel.planning.plan import Plan, plans_of
from accel.recipes.recipe import Branch, Recipe, Source, Step


class Tail(NamedTuple):
    """One image: the number of its base, and its kernels, with a ``Tail`` in place of every ``Branch``."""

    base: int
    kernels: tuple[Step, ...]


class TailedPlans(NamedTuple):
    """Images whose final results have the same shape and dtype.

    ``plans`` make their bases: base n is the image ``places[n]`` = (number of the plan, image in it), and was first
    needed by image ``owners[n]``. ``tails`` has the kernels that finish each image.
    """

    plans: tuple[Plan, ...]
    places: tuple[tuple[int, int], ...]
    owners: tuple[int, ...]
    tails: tuple[Tail, ...]


def tailed_plans(recipes: Sequence[Recipe]) -> TailedPlans:
    """Plan images, some of which have kernels."""
    bases: list[tuple[Source, Steps, Steps, Steps]] = []
    owners: list[int] = []
    interleaved: list[bool] = []
    numbers: dict[tuple[Any, ...], int] = {}

    def tail(recipe: Recipe, owner: int) -> Tail:
        source, steps = recipe
        on_pixels, on_values, after = parts(steps)
        key = id(source), tuple(map(id, on_pixels)), tuple(map(id, on_values))
        if key not in numbers:
            numbers[key] = len(bases)
            bases.append((source, on_pixels, on_values, ()))
            interleaved.append(on_values[:1] == (("pil_to_tensor", ()),))
            owners.append(owner)
        kernels = _to_layout(recipe, after, interleaved[numbers[key]])
        for name, params in after:
            kernels.append((name, tuple([_with_tails(each, source, owner) for each in params])))
        return Tail(numbers[key], tuple(kernels))

    def _with_tails(param: Any, source: Source, owner: int) -> Any:
        return tail(Recipe(source, *param), owner) if isinstance(param, Branch) else param

    tails = tuple(tail(recipe, number) for number, recipe in enumerate(recipes))
    plans = plans_of(bases, interleaved)
    places = {number: (n, place) for n, (_, own) in enumerate(plans) for place, number in enumerate(own)}
    return TailedPlans(
        tuple(each for each, _ in plans), tuple(places[number] for number in range(len(bases))), tuple(owners), tails
    )


def _to_layout(recipe: Recipe, kernels: Steps, interleaved: bool) -> list[Step]:
    """The step that lays a base, which is dense, out as torchvision's tensor before the kernels; none if it is so."""
    if not kernels or kernels[0][0] == "in_memory":
        return []
    layout = layouts.of(recipe.steps[: -len(kernels)], recipe.source.header)
    return [] if layout in (None, Layout(interleaved)) else [("in_memory", layout)]
