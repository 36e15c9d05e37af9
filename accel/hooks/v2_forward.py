"""``torchvision.transforms.v2.Transform.forward``: a shorter way for lazy samples, without torch's pytree.

torchvision's ``forward`` flattens samples of any structure and rebuilds them. For an image alone its work is written
out here; for a lazy image and plain leaves in a tuple, its own code runs with a ``tree_flatten`` for just that. Both
are compared with the original before they are used.
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
from accel.hooks.patch import Attribute, Function
from accel.hooks.tv_tensors import LazyTVImage
from accel.lazy.image import LazyPlainImage
from accel.lazy.jpeg_file import LazyJpegFile
from accel.lazy.tensor import LazyTensor

_LAZY = {LazyPlainImage, LazyJpegFile, LazyTensor, LazyTVImage}
_LEAVES = {*_LAZY, torch.Tensor, int, float, bool, str, NoneType}
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


def _of_image(self: Any, image: Any) -> Any:
    leaves = [image]
    self.check_inputs(leaves)
    if not self._needs_transform_list(leaves)[0]:
        self.make_params([])
        return image
    return self.transform(image, self.make_params(leaves))


def _by_chance(self: Any, image: Any) -> Any:
    leaves = [image]
    self.check_inputs(leaves)
    if tv_transforms.rand(1) >= self.p:
        return image
    if not self._needs_transform_list(leaves)[0]:
        self.make_params([])
        return image
    return self.transform(image, self.make_params(leaves))


def _forward(original: FunctionType, of_image: Function, usual: Callable[[Any], bool] = lambda self: True) -> Function:
    """``forward``: (*inputs) -> the sample; ``usual``: whether the quick way may be taken."""
    of_leaves = tv_transforms.with_cheap_tensors(original)
    of_leaves.__globals__.update(
        tree_flatten=lambda sample: (list(sample), None), tree_unflatten=lambda leaves, spec: tuple(leaves)
    )

    def quick(self: Any, *inputs: Any) -> Any:
        alone = len(inputs) == 1 and type(inputs[0]) is not tuple
        return of_image(self, *inputs) if alone else of_leaves(self, *inputs)

    if not tv_transforms.checked(original, quick, _some_sample):
        return original

    @functools.wraps(original)
    def forward(self: Any, *inputs: Any) -> Any:
        if len(inputs) == 1 and type(inputs[0]) in _LAZY:
            return (of_image if usual(self) else original)(self, *inputs)
        return (of_leaves if _are_leaves(inputs) and usual(self) else original)(self, *inputs)

    return forward


def _are_leaves(inputs: Any) -> bool:
    """Whether the inputs are a lazy image and plain leaves, or a tuple of these."""
    if len(inputs) == 1 and type(inputs[0]) is tuple:
        inputs = inputs[0]
    return len(inputs) > 1 and type(inputs[0]) in _LAZY and all(type(leaf) in _LEAVES for leaf in inputs)


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
    asked: list[Any] = []

    def answer(question: str, leaves: Any, answer: Any) -> Any:
        if question == "check":
            asked.clear()
        asked.append((question, leaves, torch.rand(1).item()))
        return answer

    transform = SimpleNamespace(
        p=generator.choice((0.0, 0.1, 0.5, 1.0, generator.random())),
        check_inputs=lambda leaves: answer("check", list(leaves), None),
        make_params=lambda leaves: answer("params", list(leaves), {"seed": 1}),
        transform=lambda leaf, params: answer("transform", (leaf, params), [*asked]),
        _needs_transform_list=lambda leaves: answer("needs", list(leaves), [type(leaf) is not int for leaf in leaves]),
    )
    return transform, *generator.choice(((image,), (image, label), ((image, label),), (label,)))


plain = partial(_forward, of_image=_of_image)
by_chance = partial(_forward, of_image=_by_chance, usual=lambda self: type(self.p) is float and tv_transforms.usual())
PATCHES = (
    Attribute("torchvision.transforms.v2.Transform.forward", plain),
    Attribute("torchvision.transforms.v2.Transform._needs_transform_list", needs),
    Attribute("torchvision.transforms.v2._transform._RandomApplyTransform.forward", by_chance),
)
