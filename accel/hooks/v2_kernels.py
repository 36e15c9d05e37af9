"""torchvision.transforms.v2 on late tensors: a late ``tv_tensors.Image``, and kernels that record.

After ``ToImage()`` resizing follows torch's uint8 arithmetic, not Pillow's (``tv_resize``). A kernel that
cannot record what it is asked for has the values computed and hands over to torchvision's own, which also raises
what is to be raised.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from math import prod
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from accel.hooks import tensor_geometry
from accel.hooks.accepted import ACCEPTED, NotFinite
from accel.hooks.accepted import numbers as numbers_alone
from accel.hooks.tv_functional import in_place, numbers, pixels, recorded_erase, recorded_value
from accel.hooks.tv_functional_pil import AUTOCAST
from accel.hooks.tv_functional_tensor import recorded
from accel.lazy import mixing
from accel.lazy.base import LateTensor, is_late, values_of
from accel.lazy.from_pixels import begin
from accel.lazy.loader_batch import send
from accel.lazy.tensor import LazyTensor, clone, cpu, cuda, is_pinned, pin_memory, stack_late, to
from accel.ops.kernels import frozen
from accel.system import arithmetic, counters
from accel.system.private_names import private

private("torchvision.transforms.v2.functional", *(name[3:] for name in ACCEPTED if name.startswith("v2.")))
_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_center_crop_parse_output_size",
    "_center_crop_compute_padding",
    "_center_crop_compute_crop_anchor",
    "_parse_five_crop_size",
)
_helpers = private("torchvision.tv_tensors._torch_function_helpers", "_must_return_subclass")


def keeps_class() -> bool:
    """Whether operations of torch are to return torchvision's classes (``set_return_type``), not plain tensors."""
    return bool(_helpers._must_return_subclass())


def _as_pure_tensor(handler: Callable[..., Any]) -> Callable[..., Any]:
    """LazyTensor's handler of a function that makes plain tensors of torchvision's tv_tensors."""

    def handle(image: Any, *args: Any, **kwargs: Any) -> Any:
        result = NotImplemented if keeps_class() else handler(image, *args, **kwargs)
        if result is NotImplemented or type(result) is LazyTensor:
            return result
        if not is_late(result):
            return result.as_subclass(torch.Tensor)
        pure = result.as_late(LazyTensor)
        pure.late = result.late
        return pure

    return handle


class LazyTVImage(LateTensor, tv_tensors.Image):  # type: ignore[misc]
    """A ``torchvision.tv_tensors.Image`` on the CPU with late values."""

    becomes: ClassVar[type[torch.Tensor]] = tv_tensors.Image
    handlers: ClassVar[dict[Any, Callable[..., Any]]] = {
        torch.stack: _as_pure_tensor(stack_late),
        torch.Tensor.clone: clone,
        torch.Tensor.to: to,
        torch.Tensor.cuda: _as_pure_tensor(cuda),
        torch.Tensor.cpu: _as_pure_tensor(cpu),
        torch.Tensor.pin_memory: _as_pure_tensor(pin_memory),
        torch.Tensor.is_pinned: is_pinned,
        torch.Tensor.view: _as_pure_tensor(mixing.view),
        torch.Tensor.reshape: _as_pure_tensor(mixing.view),
        **dict.fromkeys(LateTensor.either, _as_pure_tensor(mixing.multiplied)),
    }

    @staticmethod
    def wrap(value: torch.Tensor, like: Any, **kwargs: Any) -> torch.Tensor:
        """What torchvision's own code makes of one."""
        if is_late(value) and isinstance(value, LateTensor):
            return value.as_late(LazyTVImage)
        image: torch.Tensor = value.as_subclass(tv_tensors.Image)
        return image

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return self.clone()  # torchvision's copies no attributes


ForkingPickler.register(LazyTVImage, send)


def to_image(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.transforms.v2.functional.to_image``, on late images and tensors."""

    def to_image(inpt: Any) -> Any:
        image = begin(inpt) if isinstance(inpt, Image.Image) else None
        if image is not None:
            return pixels(LazyTVImage, image)
        return inpt.as_late(LazyTVImage) if type(inpt) is LazyTensor and is_late(inpt) else original(inpt)

    return to_image


def to_pure_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.transforms.v2.ToPureTensor.transform``."""

    def transform(self: Any, inpt: Any, params: Any) -> Any:
        return inpt.as_late(LazyTensor) if is_late(inpt) else original(self, inpt, params)

    return transform


def mixed(original: Callable[..., Any], name: str, param: str) -> Callable[..., Any]:
    """``transform`` of v2's ``MixUp`` or ``CutMix``: on a late batch a step on the whole of it."""

    @functools.wraps(original)
    def transform(self: Any, inpt: Any, params: dict[str, Any]) -> Any:
        if not is_late(inpt) or not isinstance(inpt, LateTensor) or len(inpt.late.lead) != 1:
            return original(self, inpt, params)
        if name == "mixup" and not inpt.late.dtype.is_floating_point:
            return original(self, inpt, params)
        self._check_image_or_video(inpt, batch_size=params["batch_size"])
        return inpt.onto_batch((name, (frozen(params[param]),)))

    return transform


def linear_transformation(original: Callable[..., Any]) -> Callable[..., Any]:
    """``LinearTransformation.forward`` of v1, ``transform`` of v2."""

    @functools.wraps(original)
    def transform(self: Any, inpt: Any, *params: Any) -> Any:
        matrix, mean = self.transformation_matrix, self.mean_vector
        if is_late(inpt) and isinstance(inpt, LateTensor) and len(inpt.late.recipes) == 1:
            late = inpt.late
            fits = prod(late.shape) == matrix.shape[0] and matrix.device.type == mean.device.type == "cpu"
            if fits and not late.after and not (matrix.requires_grad or mean.requires_grad):
                if not arithmetic.autocasts():
                    dtype = torch.promote_types(late.dtype, mean.dtype)
                    return inpt.called("linear_transformation", (matrix, mean), dtype)
                counters.fallback(AUTOCAST)
        return original(self, inpt, *params)

    return transform


def convert_image_dtype(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.transforms.v2.functional.convert_image_dtype``."""

    def convert_image_dtype(image: Any, dtype: Any = torch.float32) -> Any:
        late = _to_dtype(image, dtype, True) if is_late(image) else None
        return original(image, dtype) if late is None else late

    return convert_image_dtype


def kernels() -> Iterator[tuple[Callable[..., Any], type, Callable[..., Any]]]:
    """What to register: a functional, a late class, and the kernel for it."""
    for functional, record in _RECORDERS.items():
        for cls in (LazyTensor, LazyTVImage):
            yield functional, cls, _kernel(functional, record)


def _kernel(functional: Callable[..., Any], record: Callable[..., Any]) -> Callable[..., Any]:

    def kernel(image: LateTensor, *args: Any, **kwargs: Any) -> Any:
        if is_late(image):
            try:
                late = record(image, *args, **kwargs)
            except NotFinite:
                raise
            except Exception:
                late = None  # wrong arguments: torchvision's own kernel says so
            if late is not None:
                return late
        return functional(values_of(image), *args, **kwargs)

    return kernel


def _recorder(name: str) -> Callable[..., Any]:
    def record(image: LateTensor, *args: Any, **kwargs: Any) -> LateTensor | None:
        return recorded(image, name, args, kwargs)

    return record


# -- recorders: the late result, or None --------------------------------------------------------------------


def _crop(image: LateTensor, top: int, left: int, height: int, width: int) -> LateTensor | None:
    return recorded(image, "v2.crop", (top, left, height, width), {})


def _center_crop(image: LateTensor, output_size: Any) -> LateTensor | None:
    _, old_height, old_width = image.late.shape
    height, width = _geometry._center_crop_parse_output_size(output_size)
    if height > old_height or width > old_width:
        left, top, right, bottom = _geometry._center_crop_compute_padding(height, width, old_height, old_width)
        padded = _crop(image, -top, -left, old_height + top + bottom, old_width + left + right)
        if padded is None:
            return None
        image = padded
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
    flipped = recorded(image, "v2.vertical_flip" if vertical_flip else "v2.horizontal_flip", (), {})
    if flipped is None:
        return None
    first, second = _five_crop(image, size), _five_crop(flipped, size)
    return None if first is None or second is None else first + second


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
    if tensor_geometry.takes_pixels(image):
        late = tensor_geometry.resized_crop(image, top, left, height, width, size, interpolation, antialias)
        if late is not None:
            return late
    cropped = _crop(image, top, left, height, width)
    if cropped is None:
        return None
    return recorded(cropped, "v2.resize", (size, interpolation), {"antialias": antialias})


def _gaussian_noise(image: LateTensor, mean: Any = 0.0, sigma: Any = 0.1, clip: bool = True) -> LateTensor | None:
    """The noise is drawn now, as torchvision draws it, and added later."""
    late = image.late
    floating = late.dtype.is_floating_point
    if len(late.recipes) > 1 or late.after or not (floating or late.dtype == torch.uint8):
        return None
    if not numbers_alone((mean, sigma), "mean and sigma") or sigma < 0:
        return None
    like = torch.empty_strided(image.shape, image.stride(), dtype=late.dtype if floating else torch.float32)
    if floating:
        noise = mean + torch.randn_like(like) * sigma
    else:
        noise = ((mean * 255) + torch.randn_like(like) * (sigma * 255)).to(torch.int16)
    return image.called("gaussian_noise", (noise.reshape(late.shape), bool(clip)))


def _to_dtype(image: LateTensor, dtype: Any = torch.float, scale: bool = False) -> LateTensor | None:
    if not isinstance(dtype, torch.dtype):
        return None
    if dtype == image.late.dtype:
        return image
    return recorded_value(image, ("to_dtype", (dtype, scale)), dtype)


def _normalize(image: LateTensor, mean: Any, std: Any, inplace: bool = False) -> LateTensor | None:
    if not image.late.dtype.is_floating_point or (inplace and image.late.aliased):
        return None
    means, stds = numbers(mean), numbers(std)
    if means is None or stds is None:
        return None
    late = recorded_value(image, ("normalize", (means, stds)), image.late.dtype)
    return in_place(image, late) if inplace and late is not None else late


_COMPOSED: dict[Callable[..., Any], Callable[..., Any]] = {
    F.center_crop: _center_crop,
    F.five_crop: _five_crop,
    F.ten_crop: _ten_crop,
    F.resized_crop: _resized_crop,
    F.gaussian_noise: _gaussian_noise,
    F.to_dtype: _to_dtype,
    F.normalize: _normalize,
    F.erase: recorded_erase,
}
_RECORDERS = {
    **_COMPOSED,
    **{getattr(F, name[3:]): _recorder(name) for name in ACCEPTED if name.startswith("v2.") and hasattr(F, name[3:])},
}
