"""The transforms that can be compiled, and programs made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby
from typing import Any

from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.hooks.compiled import stock
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import builders as build
from accel.hooks.compiled.transforms import random_apply
from accel.hooks.compiled.transforms.builders import Builder, Built
from accel.hooks.compiled.transforms.draws import Instruction
from accel.hooks.compiled.transforms.fixed import ImageKind, alike, moved


def _within(transform: Any) -> list[list[Any]]:
    """The transforms within one that chooses or orders them, each in its parts."""
    return [[each for each, _ in part] for part in stock.within(transform, TRANSFORMS)]


def _any_of(transform: Any, kind: ImageKind, *kinds: ImageKind) -> ImageKind:
    """The common kind of images of any of these kinds.

    Raises:
        Refused: they are not alike.
    """
    if not all(alike(each, kind) for each in kinds):
        raise Refused(f"{type(transform).__name__} makes images of another kind")
    erased, interleaved = any(each.erased for each in kinds), {each.interleaved for each in kinds}
    return kind._replace(erased=erased, interleaved=interleaved.pop() if len(interleaved) == 1 else None)


def _apply(transform: Any, kind: ImageKind) -> Built:
    ops, after = built(chain.from_iterable(_within(transform)), kind)
    applied = random_apply.RandomApply(transform.p, ops, also_equal=not isinstance(transform, v2.Transform))
    return [applied], _any_of(transform, kind, kind, after)


def _choice(transform: Any, kind: ImageKind, choose: Callable[[int], random_apply.Chooser]) -> Built:
    parts = [built(part, kind) for part in _within(transform)]
    after = _any_of(transform, kind, *[made for _, made in parts])
    return [random_apply.Choice(choose(len(parts)), [ops for ops, _ in parts])], after


def _one_of(transform: Any, kind: ImageKind) -> Built:
    if isinstance(transform, v2.Transform):
        return _choice(transform, kind, lambda count: random_apply.multinomial(transform.p))
    return _choice(transform, kind, lambda count: random_apply.python_choice(count, transform.p))


def _ordered(transform: Any, kind: ImageKind) -> Built:
    if kind.cls is not None:  # any of the transforms may come first
        kind = moved(kind)._replace(erased=True)
    by_torch = isinstance(transform, v2.Transform)
    return _choice(transform, kind, random_apply.permutation if by_torch else random_apply.python_order)


def built(transforms: Iterable[Any], kind: ImageKind) -> Built:
    """The parts of the program of transforms in order, for images of a kind, and the kind that they make.

    Raises:
        Refused: there is no program.
    """
    ops: list[Instruction] = []
    for builder, group in groupby(transforms, lambda transform: DRAWING.get(type(transform))):
        parts = list(group)
        made, kind = _fixed(parts, kind) if builder is None else _drawing(builder, parts, kind)
        ops += made
    return ops, kind


def _fixed(transforms: Sequence[Any], kind: ImageKind) -> Built:
    """The parts for transforms in order that draw nothing."""
    ops = []
    for together in [[each] for each in transforms] if kind.erased else [transforms]:
        op, kind = build.fixed(together, kind)
        ops.append(op)
    return ops, kind


def _drawing(builder: Builder, transforms: Sequence[Any], kind: ImageKind) -> Built:
    """The parts for transforms in order that this builder is for."""
    ops = []
    for transform in transforms:
        made, kind = builder(transform, kind)
        ops += made
        if kind.cls is not None and type(transform) not in _KEEPING:
            kind = moved(kind)._replace(erased=True)  # only some images' levels are changed
    return ops, kind


_NAMED: dict[str, Builder] = {
    "RandomResizedCrop": build.resized_crop,
    "RandomCrop": build.crop,
    "RandomHorizontalFlip": build.flip("hflip"),
    "RandomVerticalFlip": build.flip("vflip"),
    "RandomErasing": build.erasing,
    "RandomApply": _apply,
    "RandomChoice": _one_of,
    "RandomOrder": _ordered,
    "RandomGrayscale": build.grey,
    "ColorJitter": build.jitter,
    "RandomInvert": build.with_probability("invert"),
    "RandomPosterize": build.with_probability("posterize", "bits"),
    "RandomSolarize": build.with_probability("solarize", "threshold"),
    "RandomAutocontrast": build.with_probability("autocontrast"),
    "RandomEqualize": build.with_probability("equalize"),
    "RandomAdjustSharpness": build.with_probability("adjust_sharpness", "sharpness_factor"),
    "GaussianBlur": build.blur,
    "RandomRotation": build.rotation,
    "RandomAffine": build.affine,
    "RandomPerspective": build.perspective,
    "RandAugment": build.choice,
    "TrivialAugmentWide": build.choice,
    "AutoAugment": build.policy,
}
"""The builders of transforms that draw, by the name that both versions have."""

_SIZES: dict[type, Builder] = {
    v2.RandomResize: build.size,
    v2.RandomShortestSize: build.shortest,
    v2.ScaleJitter: build.scale,
}
DRAWING: dict[type, Builder] = {
    **{getattr(version, name): builder for version in (v1, v2) for name, builder in _NAMED.items()},
    **_SIZES,
    v2.RandomZoomOut: build.zoom_out,
    v2.RandomPhotometricDistort: build.distort,
    v2.RandomChannelPermutation: build.channels,
    v2.JPEG: build.compressed,
}
_MOVING = ("RandomResizedCrop", "RandomCrop", "RandomHorizontalFlip", "RandomVerticalFlip")
_CONTAINERS = ("RandomApply", "RandomChoice", "RandomOrder")
_KEEPING = {
    *_SIZES,
    *(getattr(version, name) for version in (v1, v2) for name in (*_MOVING, *_CONTAINERS, "RandomErasing")),
}
"""Transforms that change no levels, or whose builders set ``ImageKind.erased`` themselves."""

_FIXED = ("Resize", "CenterCrop", "Pad", "Grayscale", "PILToTensor", "Normalize", "ConvertImageDtype")
TRANSFORMS = frozenset(
    {
        *DRAWING,
        *(getattr(version, name) for version in (v1, v2) for name in _FIXED),
        *(v1.ToTensor, nn.Identity, v2.Identity, v2.RGB, v2.ToImage, v2.ToDtype, v2.ToPureTensor),
    }
)
"""The classes that can be compiled."""
