"""``torchvision.transforms.v2.Transform.forward``: a shorter way for lazy samples, without torch's pytree.

torchvision's ``forward`` flattens samples of any structure and rebuilds them. For a lazy image, alone or with plain
leaves in a tuple, its work is written out here, and compared with the original before it is used.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from functools import partial
from types import FunctionType, NoneType, SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms.v2.functional import is_pure_tensor

from accel.hooks import tv_transforms
from accel.hooks.compiled.single import LAZY
from accel.hooks.patch import Attribute, Function

_LEAVES = {*LAZY, torch.Tensor, int, float, bool, str, NoneType}
"""Types that are leaves to torch's pytree."""


def needs(original: FunctionType) -> Callable[..., list[bool]]:
    """``Transform._needs_transform_list``: (leaves) -> whether each must be transformed."""
    if not tv_transforms.checked(original, _needs_of_image, _some_image):
        return original

    @functools.wraps(original)
    def needs_transform_list(self: Any, flat_inputs: list[Any]) -> list[bool]:
        return (_needs_of_image if len(flat_inputs) == 1 else original)(self, flat_inputs)

    return needs_transform_list


def _needs_of_image(self: Any, leaves: list[Any]) -> list[bool]:
    (image,) = leaves
    for each in self._transformed_types:
        if isinstance(image, each) if isinstance(each, type) else each(image):
            return [True]
    return [False]


def _of_leaves(self: Any, leaves: list[Any], by_chance: bool) -> list[Any]:
    """The leaves of a sample after a transform; the list itself if it was not applied."""
    self.check_inputs(leaves)
    if by_chance and not tv_transforms.happens(self.p):
        return leaves
    needs = self._needs_transform_list(leaves)
    if needs == [True]:
        return [self.transform(leaves[0], self.make_params(leaves))]
    params = self.make_params([leaf for leaf, needed in zip(leaves, needs, strict=False) if needed])
    return [self.transform(leaf, params) if needed else leaf for leaf, needed in zip(leaves, needs, strict=False)]


def _of_inputs(self: Any, inputs: tuple[Any, ...], by_chance: bool) -> Any:
    """The sample after a transform: one image, or a tuple of leaves, given as one input or as several."""
    sample = inputs if len(inputs) > 1 else inputs[0]
    if type(sample) is not tuple:
        return _of_leaves(self, [sample], by_chance)[0]
    made = _of_leaves(self, leaves := list(sample), by_chance)
    return sample if made is leaves else tuple(made)


def forward(original: FunctionType, by_chance: bool) -> Function:
    """``forward``: (*inputs) -> the sample. ``by_chance``: of transforms that are applied with a probability."""

    def quick(self: Any, *inputs: Any) -> Any:
        return _of_inputs(self, inputs, by_chance)

    if not tv_transforms.checked(original, quick, _some_sample):
        return original

    @functools.wraps(original)
    def instead(self: Any, *inputs: Any) -> Any:
        known = (len(inputs) == 1 and type(inputs[0]) in LAZY) or _are_leaves(inputs)
        if known and (not by_chance or (type(self.p) is float and tv_transforms.usual())):
            return _of_inputs(self, inputs, by_chance)
        return original(self, *inputs)

    return instead


def _are_leaves(inputs: Any) -> bool:
    """Whether the inputs are a lazy image and plain leaves, or a tuple of these."""
    if len(inputs) == 1 and type(inputs[0]) is tuple:
        inputs = inputs[0]
    return len(inputs) > 1 and type(inputs[0]) in LAZY and all(type(leaf) in _LEAVES for leaf in inputs)


def _some_image(generator: random.Random) -> tuple[Any, ...]:
    kinds = (torch.Tensor, tv_tensors.TVTensor, tv_tensors.Image, Image.Image, int, is_pure_tensor)
    tensor = torch.zeros(3, 2, 2)
    image = generator.choice((tensor, tv_tensors.Image(tensor), tv_tensors.Mask(tensor), Image.new("L", (2, 2)), 3))
    return SimpleNamespace(_transformed_types=generator.sample(kinds, generator.randint(0, 2))), [image]


def _some_sample(generator: random.Random) -> tuple[Any, ...]:
    """A stand-in for a transform, whose result lists all calls that it got, and a sample in one of the known forms.

    Each call draws a number, so that also calls after the last ``transform`` show, in the generator's state.
    """
    image, label = Image.new("L", (generator.randint(1, 9), 2)), generator.randint(0, 9)
    calls: list[Any] = []

    def answer(question: str, leaves: Any, answer: Any) -> Any:
        if question == "check":
            calls.clear()
        calls.append((question, leaves, torch.rand(1).item()))
        return answer

    transform = SimpleNamespace(
        p=generator.choice((0.0, 0.1, 0.5, 1.0, generator.random())),
        check_inputs=lambda leaves: answer("check", list(leaves), None),
        make_params=lambda leaves: answer("params", list(leaves), {"seed": 1}),
        transform=lambda leaf, params: answer("transform", (leaf, params), [*calls]),
        _needs_transform_list=lambda leaves: answer("needs", list(leaves), [type(leaf) is not int for leaf in leaves]),
    )
    return transform, *generator.choice(((image,), (image, label), ((image, label),), (label,)))


PATCHES = (
    Attribute("torchvision.transforms.v2.Transform.forward", partial(forward, by_chance=False)),
    Attribute("torchvision.transforms.v2.Transform._needs_transform_list", needs),
    Attribute("torchvision.transforms.v2._transform._RandomApplyTransform.forward", partial(forward, by_chance=True)),
)
