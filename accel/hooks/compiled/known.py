"""The transforms that are compiled: the attributes that their work depends on, and what those that draw become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.hooks.compiled import draws, policies, stock
from accel.hooks.compiled.draws import Op, Size
from accel.hooks.compiled.fixed import Fixed, Kind
from accel.hooks.compiled.stock import Refused
from accel.rows import Form, Slot

Attributes = dict[str, Any]
Maker = Callable[[Any, Attributes, Kind], "tuple[list[Op], Kind]"]


def _resized_crop(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    if given["antialias"] is not True or len(given["size"]) != 2:
        raise Refused("RandomResizedCrop has unusual parameters")
    size = given["size"]
    tried = Fixed([_Tried(transform, size)], kind)
    steps = tried.found((), (size[0] + 5, size[1] + 7))[0].forms
    if [form.name for form in steps[:-1]] != ["crop"] or kind.dtype != torch.uint8:
        raise Refused("RandomResizedCrop is not recorded as usual")
    resize = Form(steps[-1].name, (*size, *steps[-1].params[2:]))
    logs = given.get("_log_ratio") or draws.log_bounds(given["ratio"])
    op = draws.ResizedCrop(size, given["scale"], given["ratio"], logs, resize, kind.cls is not None)
    return [op], _moved(kind)


class _Tried:
    """A crop that is none of all the image, and then resized."""

    def __init__(self, transform: Any, size: Size) -> None:
        self._transform, self._size = transform, size

    def __call__(self, image: Any) -> Any:
        transform, (height, width) = self._transform, self._size
        if isinstance(transform, v2.Transform):
            return transform.transform(image, {"top": 1, "left": 2, "height": height + 2, "width": width + 3})
        return v1.functional.resized_crop(
            image, 1, 2, height + 2, width + 3, transform.size, transform.interpolation, antialias=transform.antialias
        )


def _moved(kind: Kind) -> Kind:
    """What a kind is when pixels were moved: how a tensor lies in memory then depends on where from."""
    return kind if kind.cls is None else kind._replace(interleaved=None)


def _crop(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    if given["pad_if_needed"]:
        raise Refused("RandomCrop pads if needed")
    ops: list[Op] = []
    if given["padding"] is not None:
        is_v2 = isinstance(transform, v2.Transform)
        padding = given["padding"]
        if is_v2:  # that of the class is left, right, top, bottom
            left, right, top, bottom = padding
            padding = left, top, right, bottom
        if not is_v2 or any(padding):
            listed = list(padding) if isinstance(padding, tuple) else padding
            pad = (v2 if is_v2 else v1).Pad(listed, transform.fill, transform.padding_mode)
            ops.append(Fixed([pad], kind))
    return [*ops, draws.Crop(given["size"], both=not isinstance(transform, v2.Transform))], _moved(kind)


def _flip(step: str) -> Maker:
    def make(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
        return [draws.Flip(given["p"], step)], kind

    return make


def _erasing(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    value = given["value"]
    if type(value) in (int, float):
        value = (float(value),)
    if kind.cls is None or type(value) is not tuple or len(value) not in (1, kind.channels) or given["inplace"]:
        raise Refused("RandomErasing has unusual parameters")
    logs = given.get("_log_ratio") or draws.log_bounds(given["ratio"])
    return [draws.Erasing(given["p"], given["scale"], logs, tuple(map(float, value)))], kind._replace(erased=True)


def _grey(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    functional = v2.functional if isinstance(transform, v2.Transform) else v1.functional
    grey = Fixed([partial(functional.rgb_to_grayscale, num_output_channels=kind.channels)], kind)
    return [policies.Perhaps(given["p"], [grey])], kind


def _jitter(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    functional = v2.functional if isinstance(transform, v2.Transform) else v1.functional
    forms: list[Form] = []
    for name in _JITTERS:
        if given[name] is None:
            forms.append(Form(""))
            continue
        done = partial(getattr(functional, f"adjust_{name}"), **{f"{name}_factor": _FACTOR})
        found = Fixed([done], kind).found((), (40, 50))[0].forms
        if len(found) != 1 or found[0].params.count(_FACTOR) != 1 or found[0].drawn >= 0:
            raise Refused("ColorJitter is not recorded as usual")
        (step,) = found
        forms.append(Form(step.name, tuple(Slot(0, real=True) if each == _FACTOR else each for each in step.params)))
    return [policies.Jitter([given[name] for name in _JITTERS], forms)], kind


_JITTERS, _FACTOR = ("brightness", "contrast", "saturation", "hue"), 0.34375


def _choice(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    return [policies.Choice(transform, given, kind)], kind


def _apply(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    ops, after = built(stock.within(transform, NAMES), kind)
    if after != kind and after != _moved(kind):
        raise Refused("RandomApply makes images of another kind")
    also_equal = not isinstance(transform, v2.Transform)
    return [policies.Perhaps(given["p"], ops, also_equal=also_equal)], after


def built(found: Sequence[tuple[Any, stock.Leaf]], kind: Kind) -> tuple[list[Op], Kind]:
    """The program of transforms, one after the other, for images of a kind, and the kind that they make.

    Raises:
        Refused: there is none.
    """
    ops: list[Op] = []
    for maker, group in groupby(found, lambda part: DRAWING.get(type(part[0]))):
        if maker is None:
            ops.append(op := Fixed([transform for transform, _ in group], kind))
            kind = op.tried(_SIZE)
        else:
            if kind.erased and maker[1] is not _erasing:
                raise Refused("pixels are moved after some were erased")
            for transform, (_, values, *_) in group:
                made, kind = maker[1](transform, dict(values), kind)
                ops += made
            if kind.cls is not None and maker[1] in (_jitter, _choice, _grey, _apply):
                kind = kind._replace(erased=True)  # levels that some images have changed
    return ops, kind


_SIZE = 256, 320
DRAWING: dict[type, tuple[tuple[str, ...], Maker]] = {}
_FIXED: dict[type, tuple[str, ...]] = {}
for _version in (v1, v2):
    _own = ("_log_ratio",) if _version is v2 else ()
    _fill = ("fill", "_fill") if _version is v2 else ("fill",)
    DRAWING |= {
        _version.RandomResizedCrop: (("size", "scale", "ratio", "interpolation", "antialias", *_own), _resized_crop),
        _version.RandomCrop: (("size", "padding", "pad_if_needed", "padding_mode", *_fill), _crop),
        _version.RandomHorizontalFlip: (("p",), _flip("hflip")),
        _version.RandomVerticalFlip: (("p",), _flip("vflip")),
        _version.RandomApply: ((), _apply),
        _version.RandomGrayscale: (("p",), _grey),
        _version.ColorJitter: (_JITTERS, _jitter),
        _version.RandAugment: (("num_ops", "magnitude", "num_magnitude_bins", "interpolation", *_fill), _choice),
        _version.TrivialAugmentWide: (("num_magnitude_bins", "interpolation", *_fill), _choice),
        _version.RandomErasing: (("p", "scale", "ratio", "value", "inplace", *_own), _erasing),
    }
    _FIXED |= {
        _version.Resize: ("size", "interpolation", "max_size", "antialias"),
        _version.CenterCrop: ("size",),
        _version.Pad: ("padding", "padding_mode", *_fill),
        _version.Grayscale: ("num_output_channels",),
        _version.PILToTensor: (),
        _version.Normalize: ("mean", "std", "inplace"),
    }
_FIXED |= {
    v1.ToTensor: (),
    v1.ConvertImageDtype: ("dtype",),
    v2.ConvertImageDtype: ("dtype",),
    v2.ToImage: (),
    v2.ToDtype: ("dtype", "scale"),
    v2.ToPureTensor: (),
    v2.Identity: (),
}
NAMES = {**_FIXED, **{cls: names for cls, (names, _) in DRAWING.items()}}
"""The attributes of each class that its work depends on."""
