"""Plans, and the kernels of torchvision that finish their images.

A recipe's ``kernels`` run on the values that its other steps give. Those come from as few plans as possible: one for
all images that come out alike there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from accel.planning.plan import Plan, plans_of
from accel.recipe import Branch, Recipe, Step


class Tail(NamedTuple):
    """One image: the number of its base, and its kernels, with a ``Tail`` for every ``Branch``."""

    base: int
    kernels: tuple[Step, ...]


class TailedPlans(NamedTuple):
    """Images that come out alike in the end.

    ``plans`` give their bases: base n is the image ``places[n]`` = (number of the plan, image in it), and was asked
    for first by image ``owners[n]``. ``tails`` has the kernels that finish these, image by image.
    """

    plans: tuple[Plan, ...]
    places: tuple[tuple[int, int], ...]
    owners: tuple[int, ...]
    tails: tuple[Tail, ...]


def tailed_plans(recipes: Sequence[Recipe]) -> TailedPlans:
    """Plan images of which some have kernels."""
    bases: list[Recipe] = []
    owners: list[int] = []
    numbers: dict[tuple[int, ...], int] = {}

    def tail(recipe: Recipe, owner: int) -> Tail:
        key = tuple(map(id, recipe[:3]))
        if key not in numbers:
            numbers[key] = len(bases)
            bases.append(recipe)
            owners.append(owner)
        kernels = []
        for name, params in recipe.kernels:
            if any(isinstance(each, Branch) for each in params):
                params = tuple(tail(Recipe(recipe.source, *branch), owner) for branch in params)
            kernels.append((name, params))
        return Tail(numbers[key], tuple(kernels))

    tails = tuple(tail(recipe, number) for number, recipe in enumerate(recipes))
    plans = plans_of(bases, [_lies_interleaved(recipe) for recipe in bases])
    places = {number: (n, place) for n, (_, own) in enumerate(plans) for place, number in enumerate(own)}
    return TailedPlans(
        tuple(each for each, _ in plans), tuple(places[number] for number in range(len(bases))), tuple(owners), tails
    )


def _lies_interleaved(recipe: Recipe) -> bool:
    """Whether torchvision's tensor of an image lies in memory as pixels do, which decides how its values add up."""
    return bool(recipe.values) and recipe.values[0][0] == "pil_to_tensor"


def has_tail(recipes: Sequence[Recipe]) -> bool:
    """Whether a plan alone does not make the images."""
    return any(recipe.kernels or recipe.source.origin is not None for recipe in recipes)
