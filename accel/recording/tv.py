"""torchvision.transforms.v2 on late tensors: a late ``tv_tensors.Image``, and kernels that record.

After ``ToImage()`` resizing follows torch's uint8 arithmetic, not Pillow's (``tv_resize``). A kernel that
cannot record what it is asked for has the values computed and hands over to torchvision's own, which also raises
what is to be raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from accel.lazy.late import LateTensor, is_late, values_of
from accel.lazy.shipping import send
from accel.lazy.tensor import LazyTensor, clone, cpu, cuda, is_pinned, pin_memory, stack_late, to
from accel.recording import tv_resize
from accel.recording.begin import begin
from accel.recording.record import numbers, pixels, recorded_erase, recorded_value
from accel.sources.recipe import Step
from accel.system.seams import private

_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_center_crop_parse_output_size",
    "_center_crop_compute_padding",
    "_center_crop_compute_crop_anchor",
    "_parse_five_crop_size",
    "_parse_pad_padding",
)


def _as_pure_tensor(handler: Callable[..., Any]) -> Callable[..., Any]:
    """LazyTensor's handler of a function that makes plain tensors of torchvision's tv_tensors."""

    def handle(image: LateTensor, *args: Any, **kwargs: Any) -> Any:
        result = handler(image, *args, **kwargs)
        if result is NotImplemented or not is_late(result):
            return result if result is NotImplemented else result.as_subclass(torch.Tensor)
        pure = as_class(result, LazyTensor)
        pure.late = result.late
        return pure

    return handle


class LazyTVImage(LateTensor, tv_tensors.Image):  # type: ignore[misc]
    """A ``torchvision.tv_tensors.Image`` on the CPU with late values."""

    becomes: ClassVar[type[torch.Tensor]] = tv_tensors.Image
    handlers: ClassVar[dict[Any, Callable[..., Any]]] = {
        torch.stack: stack_late,
        torch.Tensor.clone: clone,
        torch.Tensor.to: to,
        torch.Tensor.cuda: _as_pure_tensor(cuda),
        torch.Tensor.cpu: _as_pure_tensor(cpu),
        torch.Tensor.pin_memory: _as_pure_tensor(pin_memory),
        torch.Tensor.is_pinned: is_pinned,
    }

    @staticmethod
    def wrap(value: torch.Tensor, like: Any, **kwargs: Any) -> torch.Tensor:
        """What torchvision's own kernels make of a computed one."""
        image: torch.Tensor = value.as_subclass(tv_tensors.Image)
        return image


ForkingPickler.register(LazyTVImage, send)


def to_image(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.transforms.v2.functional.to_image``, on late images and tensors."""

    def to_image(inpt: Any) -> Any:
        image = begin(inpt) if isinstance(inpt, Image.Image) else None
        if image is not None:
            return pixels(LazyTVImage, image)
        return as_class(inpt, LazyTVImage) if type(inpt) is LazyTensor and is_late(inpt) else original(inpt)

    return to_image


def to_pure_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.transforms.v2.ToPureTensor.transform``."""

    def transform(self: Any, inpt: Any, params: Any) -> Any:
        return as_class(inpt, LazyTensor) if is_late(inpt) else original(self, inpt, params)

    return transform


def as_class(tensor: LateTensor, cls: type[LateTensor]) -> LateTensor:
    """The same late values as a tensor of another class."""
    late = tensor.late
    return cls.of(late.recipes, late.lead, late.shape, late.dtype, late.interleaved)


def kernels() -> Iterator[tuple[Callable[..., Any], type, Callable[..., Any]]]:
    """What to register: a functional, a late class, and the kernel for it."""
    for functional, record in _RECORDERS.items():
        for cls in (LazyTensor, LazyTVImage):
            yield functional, cls, _kernel(functional, record)


def _kernel(functional: Callable[..., Any], record: Callable[..., Any]) -> Callable[..., Any]:
    on_values = functional in _ON_VALUES

    def kernel(image: LateTensor, *args: Any, **kwargs: Any) -> Any:
        if is_late(image) and (on_values or not _is_patched(image)):
            try:
                late = record(image, *args, **kwargs)
                if late is not None:
                    return late
            except Exception:  # wrong arguments: torchvision's own kernel says so
                pass
        return functional(values_of(image), *args, **kwargs)

    return kernel


# -- recorders: the late result, or None --------------------------------------------------------------------


def _horizontal_flip(image: LateTensor) -> LateTensor:
    return image.moved(("hflip", ()))


def _vertical_flip(image: LateTensor) -> LateTensor:
    return image.moved(("vflip", ()))


def _crop(image: LateTensor, top: int, left: int, height: int, width: int) -> LateTensor | None:
    step = _crop_step(image, top, left, height, width)
    return None if step is None else image.moved(step)


def _crop_step(image: LateTensor, top: int, left: int, height: int, width: int) -> Step | None:
    _, old_height, old_width = image.late.shape
    inside = top >= 0 and left >= 0 and top + height <= old_height and left + width <= old_width
    if height < 1 or width < 1 or not (inside or _is_pixels(image)):
        return None
    return "crop", (top, left, height, width)


def _center_crop(image: LateTensor, output_size: Any) -> LateTensor | None:
    _, old_height, old_width = image.late.shape
    height, width = _geometry._center_crop_parse_output_size(output_size)
    if height > old_height or width > old_width:
        if not _is_pixels(image):
            return None
        left, top, right, bottom = _geometry._center_crop_compute_padding(height, width, old_height, old_width)
        image = image.moved(("crop", (-top, -left, old_height + top + bottom, old_width + left + right)))
        _, old_height, old_width = image.late.shape
    top, left = _geometry._center_crop_compute_crop_anchor(height, width, old_height, old_width)
    return _crop(image, top, left, height, width)


def _five_crop(image: LateTensor, size: Any) -> tuple[LateTensor, ...] | None:
    height, width = _geometry._parse_five_crop_size(size)
    _, old_height, old_width = image.late.shape
    if height > old_height or width > old_width:
        return None
    bottom, right = old_height - height, old_width - width
    corners = [(0, 0), (0, right), (bottom, 0), (bottom, right)]
    crops = [*[_crop(image, *corner, height, width) for corner in corners], _center_crop(image, [height, width])]
    late = tuple(crop for crop in crops if crop is not None)
    return late if len(late) == 5 else None


def _ten_crop(image: LateTensor, size: Any, vertical_flip: bool = False) -> tuple[LateTensor, ...] | None:
    crops = _five_crop(image, size)
    flipped = _five_crop(_vertical_flip(image) if vertical_flip else _horizontal_flip(image), size)
    return None if crops is None or flipped is None else crops + flipped


def _pad(image: LateTensor, padding: Any, fill: Any = None, padding_mode: str = "constant") -> LateTensor | None:
    left, right, top, bottom = _geometry._parse_pad_padding(padding)
    channels, height, width = image.late.shape
    fills = [0 if fill is None else fill] if not isinstance(fill, (list, tuple)) else list(fill)
    if not _is_pixels(image) or min(left, right, top, bottom) < 0 or len(fills) not in (1, channels):
        return None
    if padding_mode == "constant":
        possible = all(value == int(value) and 0 <= value <= 255 for value in fills)
    else:  # torch refuses to reflect more than there is
        possible = padding_mode in ("edge", "reflect", "symmetric") and fills == [0]
        possible = possible and max(left, right) < width and max(top, bottom) < height
    if not possible:
        return None
    colour = tuple(int(value) for value in fills) * (channels if len(fills) == 1 else 1)
    return image.moved(("pad", (left, top, right, bottom, padding_mode, colour if any(colour) else None)))


def _resize(
    image: LateTensor,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> LateTensor | None:
    steps = tv_resize.steps(image.late.shape[1:], size, interpolation, max_size, antialias)
    if not steps:
        return image if steps == () else None
    return image.moved(*steps) if _is_pixels(image) else None


def _resized_crop(
    image: LateTensor,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> LateTensor | None:
    crop = _crop_step(image, top, left, height, width)
    resize = None if crop is None else tv_resize.steps((height, width), size, interpolation, None, antialias)
    if crop is None or resize is None or (resize and not _is_pixels(image)):
        return None
    return image.moved(crop, *resize)


def _to_dtype(image: LateTensor, dtype: Any = torch.float, scale: bool = False) -> LateTensor | None:
    if not isinstance(dtype, torch.dtype):
        return None
    if dtype == image.late.dtype:
        return image
    return recorded_value(image, ("to_dtype", (dtype, scale)), dtype)


def _normalize(image: LateTensor, mean: Any, std: Any, inplace: bool = False) -> LateTensor | None:
    if inplace or not image.late.dtype.is_floating_point:
        return None
    means, stds = numbers(mean), numbers(std)
    if means is None or stds is None:
        return None
    return recorded_value(image, ("normalize", (means, stds)), image.late.dtype)


def _is_patched(image: LateTensor) -> bool:
    """Whether values were put in after the steps on pixels, so that no more of those can be recorded."""
    return any(values != _PIXELS and any(name == "erase" for name, _ in values) for _, _, values in image.late.recipes)


def _is_pixels(image: LateTensor) -> bool:
    """Whether the values are the pixels themselves, so that what combines them can be recorded."""
    return all(values == _PIXELS for _, _, values in image.late.recipes)


_PIXELS = (("pil_to_tensor", ()),)

_RECORDERS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.horizontal_flip: _horizontal_flip,
    F.vertical_flip: _vertical_flip,
    F.crop: _crop,
    F.center_crop: _center_crop,
    F.five_crop: _five_crop,
    F.ten_crop: _ten_crop,
    F.pad: _pad,
    F.resize: _resize,
    F.resized_crop: _resized_crop,
    F.to_dtype: _to_dtype,
    F.normalize: _normalize,
    F.erase: recorded_erase,
}
_ON_VALUES = {F.to_dtype, F.normalize, F.erase}
"""Functionals whose steps go with those on values, not with those on pixels."""
