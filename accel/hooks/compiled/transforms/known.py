"""The transforms that can be compiled, with the attributes that their work depends on, and programs made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.hooks.compiled import stock
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import builders as build
from accel.hooks.compiled.transforms import random_apply, traced
from accel.hooks.compiled.transforms.builders import Attributes, Builder
from accel.hooks.compiled.transforms.draws import Op
from accel.hooks.compiled.transforms.fixed import Kind, alike, moved


def _any_of(transform: Any, kind: Kind, *kinds: Kind) -> Kind:
    """The common kind of images of any of these kinds.

    Raises:
        Refused: they are not alike.
    """
    if not all(alike(each, kind) for each in kinds):
        raise Refused(f"{type(transform).__name__} makes images of another kind")
    erased, interleaved = any(each.erased for each in kinds), {each.interleaved for each in kinds}
    return kind._replace(erased=erased, interleaved=interleaved.pop() if len(interleaved) == 1 else None)


def _apply(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    ops, after = built([leaf for part in stock.within(transform, NAMES) for leaf in part], kind)
    applied = random_apply.RandomApply(given["p"], ops, also_equal=not isinstance(transform, v2.Transform))
    return [applied], _any_of(transform, kind, kind, after)


def _choice(transform: Any, kind: Kind, choose: Callable[[int], random_apply.Chooser]) -> tuple[list[Op], Kind]:
    parts = [built(part, kind) for part in stock.within(transform, NAMES)]
    after = _any_of(transform, kind, *[made for _, made in parts])
    return [random_apply.Choice(choose(len(parts)), [ops for ops, _ in parts])], after


def _one_of(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    if isinstance(transform, v2.Transform):
        return _choice(transform, kind, lambda count: random_apply.Multinomial(given["p"]))
    return _choice(transform, kind, lambda count: random_apply.PythonChoice(count, given["p"]))


def _ordered(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    if kind.cls is not None:  # any of the transforms may come first
        kind = moved(kind)._replace(erased=True)
    by_torch = isinstance(transform, v2.Transform)
    return _choice(transform, kind, random_apply.Permutation if by_torch else random_apply.PythonOrder)


def built(found: Sequence[tuple[Any, stock.Leaf]], kind: Kind) -> tuple[list[Op], Kind]:
    """The parts of the program of transforms in order, for images of a kind, and the kind that they make.

    Raises:
        Refused: there is no program.
    """
    ops: list[Op] = []
    for builder, group in groupby(found, lambda part: DRAWING.get(type(part[0]))):
        if builder is None:
            transforms = [transform for transform, _ in group]
            for some in [[each] for each in transforms] if kind.erased else [transforms]:
                op, kind = build.fixed(some, kind)
                ops.append(op)
        else:
            for transform, (cls, values, *_) in group:
                made, kind = builder[1](transform, dict(values), kind)
                ops += made
                if kind.cls is not None and cls not in _KEEPING:
                    kind = moved(kind)._replace(erased=True)  # only some images' levels are changed
    return ops, kind


DRAWING: dict[type, tuple[tuple[str, ...], Builder]] = {}
_FIXED: dict[type, tuple[str, ...]] = {}
_MOVING: set[type] = set()
_CONTAINERS: set[type] = set()
for _version in (v1, v2):
    _own = ("_log_ratio",) if _version is v2 else ()
    _fill = ("fill", "_fill") if _version is v2 else ("fill",)
    _scaled = "interpolation", "antialias"
    DRAWING |= {
        _version.RandomResizedCrop: (("size", "scale", "ratio", *_scaled, *_own), build.resized_crop),
        _version.RandomCrop: (("size", "padding", "pad_if_needed", "padding_mode", *_fill), build.crop),
        _version.RandomHorizontalFlip: (("p",), build.flip("hflip")),
        _version.RandomVerticalFlip: (("p",), build.flip("vflip")),
        _version.RandomErasing: (("p", "scale", "ratio", "value", "inplace", *_own), build.erasing),
    }
    _MOVING |= {_version.RandomResizedCrop, _version.RandomCrop}
    _MOVING |= {_version.RandomHorizontalFlip, _version.RandomVerticalFlip}
    DRAWING |= {
        _version.RandomApply: (("p",), _apply),
        _version.RandomChoice: (("p",), _one_of),
        _version.RandomOrder: ((), _ordered),
    }
    _CONTAINERS |= {_version.RandomApply, _version.RandomChoice, _version.RandomOrder}
    DRAWING |= {
        _version.RandomGrayscale: (("p",), build.grey),
        _version.ColorJitter: (build.JITTERS, build.jitter),
        _version.RandomInvert: (("p",), build.with_probability("invert")),
        _version.RandomPosterize: (("p", "bits"), build.with_probability("posterize", "bits")),
        _version.RandomSolarize: (("p", "threshold"), build.with_probability("solarize", "threshold")),
        _version.RandomAutocontrast: (("p",), build.with_probability("autocontrast")),
        _version.RandomEqualize: (("p",), build.with_probability("equalize")),
        _version.RandomAdjustSharpness: (
            ("p", "sharpness_factor"),
            build.with_probability("adjust_sharpness", "sharpness_factor"),
        ),
        _version.GaussianBlur: (("kernel_size", "sigma"), build.blur),
        _version.RandomRotation: (("degrees", "interpolation", "expand", "center", *_fill), build.rotation),
        _version.RandomAffine: (
            ("degrees", "translate", "scale", "shear", "interpolation", "center", *_fill),
            build.affine,
        ),
        _version.RandomPerspective: (("p", "distortion_scale", "interpolation", *_fill), build.perspective),
        _version.RandAugment: (("num_ops", "magnitude", "num_magnitude_bins", "interpolation", *_fill), build.choice),
        _version.TrivialAugmentWide: (("num_magnitude_bins", "interpolation", *_fill), build.choice),
        _version.AutoAugment: (("interpolation", "_policies" if _version is v2 else "policies", *_fill), build.policy),
    }
    _FIXED |= {
        _version.Resize: ("size", "interpolation", "max_size", "antialias"),
        _version.CenterCrop: ("size",),
        _version.Pad: ("padding", "padding_mode", *_fill),
        _version.Grayscale: ("num_output_channels",),
        _version.PILToTensor: (),
        _version.Normalize: ("mean", "std", "inplace"),
    }
_SIZES = {
    v2.RandomResize: (
        ("min_size", "max_size", *_scaled),
        build.resizes(lambda given: traced.side(given["min_size"], given["max_size"])),
    ),
    v2.RandomShortestSize: (
        ("min_size", "max_size", *_scaled),
        build.resizes(lambda given: traced.shortest(given["min_size"], given["max_size"])),
    ),
    v2.ScaleJitter: (
        ("target_size", "scale_range", *_scaled),
        build.resizes(lambda given: traced.jittered(given["target_size"], given["scale_range"])),
    ),
}
DRAWING |= _SIZES
DRAWING |= {
    v2.RandomZoomOut: (("p", "side_range", *_fill), build.zoom_out),
    v2.RandomPhotometricDistort: (("p", *build.JITTERS), build.distort),
    v2.RandomChannelPermutation: ((), build.channels),
    v2.JPEG: (("quality",), build.compressed),
}
_KEEPING = _MOVING | _CONTAINERS | _SIZES.keys() | {v1.RandomErasing, v2.RandomErasing}
"""Transforms that change no levels, or whose builders set ``Kind.erased`` themselves."""

_FIXED |= {
    v1.ToTensor: (),
    v1.ConvertImageDtype: ("dtype",),
    v2.ConvertImageDtype: ("dtype",),
    v2.RGB: (),
    v2.ToImage: (),
    v2.ToDtype: ("dtype", "scale"),
    v2.ToPureTensor: (),
    v2.Identity: (),
    nn.Identity: (),
}
NAMES = {**_FIXED, **{cls: names for cls, (names, _) in DRAWING.items()}}
"""The attributes that each class's work depends on."""
