"""Single images, as datasets of the user's own pass them to a composition of torchvision's transforms.

A composition that is used again and again gets a program like a batch's, whose draws are made directly. It makes one
lazy tensor of a lazy image, with no image in between. If anything has changed, torchvision's code runs instead. Of a
composition with callables of the user's, the parts between these get programs, which may also make images.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.hooks.compiled import compositions, program
from accel.hooks.compiled.compositions import Composition
from accel.hooks.compiled.program import Program
from accel.hooks.compiled.random_numbers import live
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms.draws import Run, Size
from accel.hooks.compiled.transforms.fixed import ImageKind
from accel.hooks.compiled.transforms.known import TRANSFORMS
from accel.hooks.patch import Attribute, Function
from accel.hooks.tv_tensors import LazyTVImage
from accel.lazy.image import LazyImage, LazyPlainImage
from accel.lazy.jpeg_file import LazyJpegFile
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops import OPS
from accel.ops.memory_layout import INTERLEAVED, PLANAR, Layout
from accel.planning import layouts
from accel.recipes.drawn import Row
from accel.recipes.recipe import Recipe, Step, recording

FIRST = 16
"""The number of images that torchvision transforms before a composition is compiled, which takes longer than a few
images."""

_KINDS = {"RGB": ImageKind(None, 3), "L": ImageKind(None, 1)}


def made(transform: Any, image: Any, *, alone: bool = True) -> LazyTensorBase | LazyImage | None:
    """What a composition makes of a lazy image; None if torchvision must make it.

    Args:
        alone: whether the composition gets nothing else; other inputs must be ones that it returns as they are.
    """
    if program.trial.goes_on:
        return None
    known = compositions.of(transform)
    known.images += 1
    reason: object
    if known.images < known.again:
        reason = known.refused
    elif known.images <= FIRST:
        reason = f"it is only compiled after {FIRST} images"
    else:
        try:
            return _made(known, transform, image, alone=alone)
        except Refused as refused:
            reason = refused
        except Exception as error:  # torchvision will raise it where it belongs
            reason = f"it raises {type(error).__name__}"
    with suppress(Exception):  # an error of the file's comes again where it belongs
        if not recording.by_batch and not _in_parts.now:
            recipe: Any = image.recipe if isinstance(image, LazyImage) else image.lazy.recipes[0]
            recipe.source.way = f"alone, not compiled: {reason}"
    return None


def _made(known: Composition, transform: Any, image: Any, *, alone: bool) -> LazyTensorBase | LazyImage:
    if isinstance(image, LazyImage):
        recipe = image.recipe
        if recipe is None or (recipe.source.origin is not None and not recipe.steps):
            raise Refused("the image has pixels")
        begin = _KINDS[image.mode]
        width, height = image._size
    else:
        lazy = image.lazy
        if lazy.lead or lazy.after or lazy.progress is not None or lazy.member is not None:
            raise Refused("the tensor is part of a batch, or computed")
        recipe = lazy.recipes[0]
        if not recipe.steps or recipe.steps[-1][0] != "pil_to_tensor" or lazy.layout != INTERLEAVED:
            raise Refused("something was done to the tensor before")
        channels, height, width = lazy.shape
        begin = ImageKind(type(image), channels, lazy.dtype)
    own = known.of_one(transform, begin)
    if not alone and not known.hands_on:
        raise Refused("one of its transforms takes nothing but an image")
    tape = live.of_thread.rewindable
    tape.begin()
    try:
        tensor = _recorded(own, own.one((height, width), tape), image)
    except Exception:
        raise  # torchvision is given the same numbers: ``_left``
    except BaseException:
        tape.end()
        raise
    tape.end()
    return tensor


def _recorded(own: Program, drawn: tuple[Run, Size], image: Any) -> LazyTensorBase | LazyImage:
    """What a program makes of an image with these draws."""
    kind, (run, size) = own.kind, drawn
    if kind.cls is None:
        return _image(image, run.steps(), kind, size)
    source, before = image.used() if isinstance(image, LazyImage) else image.lazy.recipes[0]
    if not recording.by_batch and not _in_parts.now:
        source.way = "alone, compiled"
    kernels = any(piece.kernels for piece in run.pieces)  # whose steps depend on the threads there are now
    steps = run.steps() if kernels or kind.interleaved is None else ()
    layout = _layout(steps, image) if kind.interleaved is None else Layout(kind.interleaved)
    recipes = (Recipe(source, before + steps),) if kernels else Row(source, before, run)
    return kind.cls.of(recipes, (), (kind.channels, *size), kind.dtype, layout)


def _image(image: LazyImage, steps: tuple[Step, ...], kind: ImageKind, size: Size) -> LazyImage:
    """The image after these steps, of one of a composition's parts."""
    if not steps:
        raise Refused("it may return the very image")
    renewed = any(renews(params) for name, params in steps if (renews := OPS[name].renews) is not None)
    info = {} if renewed else image._copied_info()
    source, before = image.used()
    return LazyPlainImage.make(Recipe(source, before + steps), "RGB" if kind.channels == 3 else "L", size[::-1], info)


def _layout(steps: tuple[Step, ...], image: Any) -> Layout:
    """The layout of the tensor that these steps make of an image."""
    if isinstance(image, LazyImage):
        shape, before = (len(image.mode), image.height, image.width), None
    else:
        shape, before = image.lazy.shape, INTERLEAVED  # as ``_made`` asks
    return layouts.after(steps, shape, before) or PLANAR


_IMAGES = {LazyPlainImage, LazyJpegFile}
LAZY = {*_IMAGES, LazyTensor, LazyTVImage}


def _is_of_transforms(container: nn.Sequential) -> bool:
    """Whether a container may be a composition of transforms; models are containers too, and get lazy batches."""
    for first in container._modules.values():
        return type(first) in _BEGIN
    return False


_BEGIN = TRANSFORMS | {v2.Compose, nn.Sequential}


def _left(original: Function, transform: Any, *inputs: Any) -> Any:
    """What torchvision makes of an image that was refused."""
    return live.of_thread.rewindable.left_to(original, transform, *inputs)


def _sequential(original: Function) -> Function:
    @functools.wraps(original)
    def forward(self: Any, input: Any) -> Any:
        # all models come here: so the first checks are cheap, and none makes torch's compiler break the graph
        if type(input) in LAZY and type(self) is nn.Sequential and _is_of_transforms(self):
            tensor = made(self, input)
            return _left(original, self, input) if tensor is None else tensor
        return original(self, input)

    return forward


def _v1(original: Function) -> Function:
    @functools.wraps(original)
    def __call__(self: Any, img: Any) -> Any:
        if type(img) in LAZY and type(self) is v1.Compose:
            tensor = made(self, img)
            if tensor is not None:
                return tensor
            parts = compositions.of(self).parts_of(self)
            return _left(original, self, img) if parts is None else _by_parts(parts, img)
        return original(self, img)

    return __call__


class _InParts(threading.local):
    """Whether this thread records parts of a composition; how it does so is then that of the whole."""

    now = False


_in_parts = _InParts()


def _by_parts(parts: Sequence[Any], image: Any) -> Any:
    """The result of a composition with callables of the user's: what lies between these is compiled."""
    before, _in_parts.now = _in_parts.now, True
    try:
        for part in parts:
            image = part(image)
    finally:
        _in_parts.now = before
    return image


_HANDED_ON = frozenset({int, float, str, bool, type(None), torch.Tensor})
"""Types that v2's transforms return as they are, beside an image that comes first."""


def _name_of_image(sample: dict[Any, Any]) -> Any:
    """The key of the only image in a sample that has otherwise just numbers and strings; None for other samples.

    None for lazy tensors, too: if all transforms are applied by chance, torchvision may return the very sample.
    """
    names = [name for name, value in sample.items() if type(value) in _IMAGES]
    plain = all(type(value) in _PLAIN for name, value in sample.items() if name not in names)
    return names[0] if plain and len(names) == 1 else None


_PLAIN = _HANDED_ON - {torch.Tensor}


def _v2(original: Function) -> Function:
    @functools.wraps(original)
    def forward(self: Any, *inputs: Any) -> Any:
        image, *more = inputs or (None,)
        if type(image) in LAZY and type(self) is v2.Compose and _HANDED_ON.issuperset(map(type, more)):
            tensor = made(self, image, alone=not more)
            if tensor is None:
                return _left(original, self, *inputs)
            return (tensor, *more) if more else tensor
        if type(image) is dict and not more and type(self) is v2.Compose:
            name = _name_of_image(image)
            tensor = None if name is None else made(self, image[name], alone=False)
            return _left(original, self, image) if tensor is None else {**image, name: tensor}
        return original(self, *inputs)

    return forward


PATCHES = (
    Attribute("torchvision.transforms.Compose.__call__", _v1),
    Attribute("torchvision.transforms.v2.Compose.forward", _v2),
    Attribute("torch.nn.Sequential.forward", _sequential),
)
