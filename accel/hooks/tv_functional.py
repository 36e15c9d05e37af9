"""Recorders: torchvision's functions on late images and tensors, each made around the original.

What a function checks it checks when it is recorded, by torchvision's own code where that is cheap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.functional import pil_modes_mapping

from accel.lazy.base import LateTensor, is_late, values_of
from accel.lazy.from_pixels import begin, begin_crop
from accel.lazy.image import LazyImage
from accel.lazy.tensor import LazyTensor
from accel.ops import OPS
from accel.planning import values
from accel.recipe import Recipe, Step

Function = Callable[..., Any]
T = TypeVar("T", bound=LateTensor)


def on_pillow(original: Function) -> Function:
    """A function of torchvision's on Pillow images, all that it does with them being methods that record."""

    def on_late(img: Any, *args: Any, **kwargs: Any) -> Any:
        late = begin(img)
        if late is None:
            return original(img, *args, **kwargs)
        result = original(late, *args, **kwargs)
        return img if result is late else result

    return on_late


def crop(original: Function) -> Function:
    """``torchvision.transforms._functional_pil.crop``: of an eager image a copy of the crop is enough."""

    def crop(img: Any, *box: Any, **kwargs: Any) -> Any:
        late = begin_crop(img, box) if len(box) == 4 and not kwargs else None
        if late is not None:
            return late
        cropped = original(img, *box, **kwargs)
        return begin(cropped) or cropped

    return crop


def pad(original: Function) -> Function:
    """``torchvision.transforms._functional_pil.pad``."""

    def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: Any = "constant") -> Any:
        late = begin(img)
        if late is None:
            return original(img, padding, fill, padding_mode)
        img = late
        sides = _sides(padding)
        colour = _colour(fill, len(img.getbands()))
        width, height = img.size
        if (
            sides is not None
            and colour is not None
            and padding_mode in ("constant", "edge", "reflect", "symmetric")
            and (padding_mode == "constant" or min(sides) >= 0)
            and width + sides[0] + sides[2] > 0
            and height + sides[1] + sides[3] > 0
        ):
            return img.pad(sides, padding_mode, colour if padding_mode == "constant" else None)
        return original(img, padding, fill, padding_mode)  # which also raises for what is no such argument

    return pad


def _sides(padding: Any) -> tuple[int, int, int, int] | None:
    """(left, top, right, bottom) of torchvision's forms of padding; None for what is no such form."""
    if type(padding) is int:
        return padding, padding, padding, padding
    sides = [padding] if isinstance(padding, int) else padding
    if not isinstance(sides, (list, tuple)) or len(sides) not in (1, 2, 4):
        return None
    if not all(type(side) is int for side in sides):
        return None
    left, top, right, bottom = [*sides] * (4 // len(sides))
    return left, top, right, bottom


def _colour(fill: Any, channels: int) -> tuple[int, ...] | None:
    """A fill as one int per channel, as torchvision hands it to Pillow; None for what is no such form."""
    if type(fill) is int:
        return (fill,) * channels
    colour = [0 if fill is None else fill] if not isinstance(fill, (list, tuple)) else list(fill)
    if len(colour) == 1:
        colour *= channels
    if len(colour) != channels or not all(isinstance(value, (int, float)) for value in colour):
        return None
    return tuple(int(value) for value in colour)


def resized_crop(original: Function) -> Function:
    """``torchvision.transforms.functional.resized_crop``: its usual form, without the checks on the way."""

    def resized_crop(
        img: Any,
        top: Any,
        left: Any,
        height: Any,
        width: Any,
        size: Any,
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: Any = True,
    ) -> Any:
        if type(interpolation) is InterpolationMode and antialias is not False:
            late = _resized_crop(img, top, left, height, width, size, interpolation)
            if late is not None:
                return late
        return original(img, top, left, height, width, size, interpolation, antialias=antialias)

    return resized_crop


def resized_crop_of_v2(original: Function) -> Function:
    """v2's ``resized_crop`` kernel for Pillow images."""

    def resized_crop(
        image: Any, top: Any, left: Any, height: Any, width: Any, size: Any, interpolation: Any = "bilinear"
    ) -> Any:
        mode = _MODES.get(interpolation) if isinstance(interpolation, str) else interpolation
        late = _resized_crop(image, top, left, height, width, size, mode)
        return original(image, top, left, height, width, size, interpolation) if late is None else late

    return resized_crop


_MODES = {mode.value: mode for mode in InterpolationMode}


def _resized_crop(image: Any, top: Any, left: Any, height: Any, width: Any, size: Any, mode: Any) -> Image.Image | None:
    if not isinstance(image, LazyImage) or image.recipe is None or type(mode) is not InterpolationMode:
        return None
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        return None
    cropped = image.crop((left, top, left + width, top + height))
    if cropped.size == (size[1], size[0]):
        return cropped
    return cropped.resize((size[1], size[0]), pil_modes_mapping[mode])


def to_tensor(original: Function) -> Function:
    """``torchvision.transforms.functional.to_tensor``."""

    def to_tensor(pic: Any) -> Any:
        late = begin(pic)
        if late is None:
            return original(pic)
        dtype = torch.get_default_dtype()
        return _tensor(LazyTensor, late, ("to_tensor", (dtype,)), dtype)

    return to_tensor


def pil_to_tensor(original: Function) -> Function:
    """``torchvision.transforms.functional.pil_to_tensor``."""

    def pil_to_tensor(pic: Any) -> Any:
        late = begin(pic)
        return original(pic) if late is None else pixels(LazyTensor, late)

    return pil_to_tensor


def pixels(cls: type[T], image: LazyImage) -> T:
    """A late image as a uint8 tensor, which torchvision strides [height, width, channel]."""
    return _tensor(cls, image, _PIXELS, torch.uint8, interleaved=True)


_PIXELS: Step = ("pil_to_tensor", ())


def _tensor(cls: type[T], image: LazyImage, step: Step, dtype: torch.dtype, interleaved: bool = False) -> T:
    width, height = image.size
    shape = (3 if image.mode == "RGB" else 1, height, width)
    if image._parent:
        image.used_again()
    image._parent = image._loaded = True
    recipe = image._recipe
    assert recipe is not None
    source, steps, _, _ = recipe
    if source.origin is not None and not steps:  # values that were an image for a while
        origin = source.origin
        return cls.of((origin._replace(kernels=(*origin.kernels, step)),), (), shape, dtype, interleaved)
    return cls.of((Recipe(source, steps, (step,)),), (), shape, dtype, interleaved)


def convert_image_dtype(original: Function) -> Function:
    """``torchvision.transforms.functional.convert_image_dtype``."""

    def convert_image_dtype(image: Any, dtype: torch.dtype = torch.float) -> Any:
        if not is_recorded(image) or not isinstance(dtype, torch.dtype):
            return original(image, dtype)
        if image.late.dtype == dtype:
            return image
        step = ("convert_image_dtype", (dtype,))
        late = recorded_value(image, step, dtype)
        return original(values_of(image), dtype) if late is None else late

    return convert_image_dtype


def normalize(original: Function) -> Function:
    """``torchvision.transforms.functional.normalize``."""

    def normalize(tensor: Any, mean: Any, std: Any, inplace: bool = False) -> Any:
        if not is_recorded(tensor) or (inplace and tensor.late.aliased):
            return original(tensor, mean, std, inplace)
        means, stds = numbers(mean), numbers(std)
        if means is not None and stds is not None:
            late = recorded_value(tensor, ("normalize", (means, stds)), tensor.late.dtype)
            if late is not None and inplace:
                return in_place(tensor, late)
            if late is not None:
                return late
        return original(values_of(tensor), mean, std, inplace)

    return normalize


def erase(original: Function) -> Function:
    """``torchvision.transforms.functional.erase``."""

    def erase(img: Any, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Any:
        takes = is_recorded(img) and not (inplace and img.late.aliased)
        late = recorded_erase(img, i, j, h, w, v) if takes else None
        if late is None:
            return original(img, i, j, h, w, v, inplace)
        return in_place(img, late) if inplace else late

    return erase


def in_place(tensor: LateTensor, after: LateTensor) -> LateTensor:
    """The tensor, with what was recorded on it to make the other one, of the same shape and dtype."""
    own, late = tensor.late, after.late
    own.recipes, own.after, own.part, own.since = late.recipes, late.after, late.part, late.since
    return tensor


def is_recorded(tensor: Any) -> bool:
    """Whether v1's functions record on it: of torchvision's own classes they make plain tensors, now and then."""
    return type(tensor) is LazyTensor and is_late(tensor)


def recorded_erase(tensor: T, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> T | None:
    """The tensor with a rectangle erased; None where the original decides."""
    if v is tensor:  # RandomErasing found no rectangle that fits, and puts the image where the image is
        return tensor.then() if (i, j, h, w) == (0, 0, *tensor.late.shape[1:]) else None
    params = erased((i, j, h, w), v, tensor.late.shape)
    return None if params is None else tensor.then(("erase", params))


def erased(place: tuple[Any, ...], value: Any, shape: tuple[int, int, int]) -> tuple[Any, ...] | None:
    """The parameters of ``erase`` on an image [channels, height, width]; None for what is not a place inside it."""
    channels, height, width = shape
    if not all(type(number) is int for number in place) or not isinstance(value, torch.Tensor):
        return None
    top, left, rows, columns = place
    inside = 0 <= top <= top + rows <= height and 0 <= left <= left + columns <= width
    if not inside or value.ndim > 3 or value.device.type != "cpu" or value.requires_grad:
        return None
    value = value.reshape((1,) * (3 - value.ndim) + tuple(value.shape))
    fits = all(size in (1, whole) for size, whole in zip(value.shape, (channels, rows, columns), strict=True))
    return (*place, value.clone()) if fits else None


def get_fill(original: Function) -> Function:
    """``torchvision.transforms.v2._utils._get_fill``, which looks types up exactly: late ones as what they are."""

    def get_fill(fill_dict: Any, inpt_type: Any) -> Any:
        return original(fill_dict, _canonical(inpt_type))

    return get_fill


def _canonical(kind: type) -> type:
    """The class that a late one stands for."""
    return kind.becomes if issubclass(kind, (LazyImage, LateTensor)) else kind


def to_dtype(original: Function) -> Function:
    """``torchvision.transforms.v2.ToDtype.transform``, which looks up types exactly if it has several dtypes."""

    @functools.wraps(original)
    def transform(self: Any, inpt: Any, params: Any) -> Any:
        if isinstance(self.dtype, dict) and is_late(inpt):
            dtype = self.dtype.get(inpt.becomes, self.dtype.get("others"))
            if isinstance(dtype, torch.dtype):
                return v2.functional.to_dtype(inpt, dtype, self.scale)
            original(self, inpt.becomes(torch.empty(1, 1, 1, device="cpu")), params)  # which may warn, or raise
            return inpt
        return original(self, inpt, params)

    return transform


def recorded_value(tensor: T, step: Any, dtype: torch.dtype) -> T | None:
    """The tensor with a value step; None where torchvision would refuse it."""
    late = tensor.late
    if dtype.itemsize > 8:  # complex128, of which there are no tables
        return None
    try:
        for recipe in late.recipes:
            if late.after or recipe.kernels:
                _tried(step, late.shape[0], late.dtype)
            else:
                values.table(late.shape[0], (*recipe.values, step))
    except Exception:
        return None  # the caller runs the original on the values, which says what is wrong
    return tensor.then(step, dtype=dtype)


@functools.lru_cache(maxsize=256)
def _tried(step: Any, channels: int, dtype: torch.dtype) -> None:
    """Run a value step on one pixel, for what it may raise."""
    name, params = step
    apply = OPS[name].apply
    assert apply is not None
    apply(torch.zeros((channels, 1, 1), dtype=dtype, device="cpu"), *params)


def numbers(sequence: Any) -> tuple[float, ...] | None:
    """A flat sequence of numbers, hashable; None for other forms."""
    if isinstance(sequence, torch.Tensor):
        sequence = sequence.tolist() if sequence.ndim == 1 else None
    try:
        return tuple([value if type(value) is float else _number(value) for value in sequence])
    except (TypeError, ValueError):
        return None


def _number(value: Any) -> float:
    if getattr(value, "ndim", 0):  # which NumPy takes for a number only up to 2.3, and warns
        raise TypeError("an array is no number")
    return float(value)
