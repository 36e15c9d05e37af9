"""torchvision's functional transforms on anything that holds an image, with lazy results.

    from accel import functional as F
    batch = torch.stack([F.normalize(F.to_tensor(F.resized_crop(path, *box, [224, 224])), mean, std) for path in paths])

There is a function for every op of accel's table that torchvision has a name for, and for those composed of such ops
(``center_crop``, ``resized_crop``, ``five_crop``, ``ten_crop``, ``rotate``), with torchvision's signature and results;
and there is ``decode``. The first argument may be

- an encoded image: ``bytes`` (or ``bytearray``, ``memoryview``, a one-dimensional uint8 array or tensor) or the path of
  a file;
- a Pillow image;
- pixels: a uint8 array [height, width, channels] or [height, width], of 1 or 3 channels;
- a uint8 tensor [channels, height, width], which is resized as ``torchvision.transforms.v2`` resizes tensors;

lazy or not. It is never changed, and the caller may change it afterwards. What accel does not record (images of other
modes, float tensors, batches, tensors on a device) torchvision computes at once; under the backend "torchvision" it
computes everything at once.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torchvision.transforms import functional as v1
from torchvision.transforms.v2 import functional as v2

from accel.lazy.from_pixels import lazy_image, lazy_tensor
from accel.ops import OPS

_COMPOSED = ("center_crop", "resized_crop", "five_crop", "ten_crop", "rotate")
_OF_V1 = ("to_tensor", "convert_image_dtype")  # v2's are deprecated, or kernels of v2's and nothing to record


def decode(source: Any, mode: str | None = None) -> Image.Image:
    """Open an image as ``PIL.Image.open`` does, from anything that holds one; lazy if accel decodes it.

    Args:
        source: an encoded image (bytes, a path, a one-dimensional uint8 array or tensor), a Pillow image, or a uint8
            array [height, width, channels] or [height, width].
        mode: a Pillow mode to convert it to, as in ``Image.convert``; None: the source's own.

    Returns:
        A Pillow image.

    Raises:
        OSError: there is no such file, or (``PIL.UnidentifiedImageError``) it is no image; the message names it.
            Damaged pixels raise ``accel.DecodeError`` when they are used.
        TypeError: the source is none of these.
    """
    image = _image(source)
    if not isinstance(image, Image.Image):
        raise TypeError(f"decode takes bytes, a path, a Pillow image or uint8 pixels, got {_described(source)}")
    if mode is None:
        return image
    with _closed_on_error(image if image is not source else None):
        return image.convert(mode)


def _image(source: Any) -> Any:
    """The source as a Pillow image or a tensor, lazy where possible."""
    if isinstance(source, Image.Image):
        return lazy_image(source) or source
    if isinstance(source, (str, os.PathLike)):
        return _opened(source)
    if isinstance(source, (torch.Tensor, np.ndarray)) and source.ndim == 1 and str(source.dtype).endswith("uint8"):
        source = np.asarray(source).tobytes()
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _opened(BytesIO(source))
    if isinstance(source, torch.Tensor):
        lazy = lazy_tensor(source)
        return source if lazy is None else lazy
    if isinstance(source, np.ndarray):
        image = _of_array(source)
        return lazy_image(image) or image
    raise TypeError(
        f"an image must be given as bytes, a path, a Pillow image, a uint8 array or a tensor, got {_described(source)}"
    )


def _opened(source: Any) -> Image.Image:
    opened = Image.open(source)
    with _closed_on_error(opened):
        return lazy_image(opened) or opened


@contextmanager
def _closed_on_error(image: Image.Image | None) -> Iterator[None]:
    """Close the image if the block raises: its file is broken, and Pillow leaves it to the garbage collector."""
    try:
        yield
    except BaseException:
        if image is not None:
            image.close()
        raise


def _of_array(array: npt.NDArray[Any]) -> Image.Image:
    pixels = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    fits = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if array.dtype != np.uint8 or not fits or not pixels.size:
        raise TypeError(
            "an array of pixels must be uint8 of shape [height, width], [height, width, 1] or [height, width, 3], "
            f"got {_described(array)}"
        )
    return Image.fromarray(np.ascontiguousarray(pixels))


def _described(value: Any) -> str:
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"{type(value).__name__} of shape {list(value.shape)} and dtype {value.dtype}"
    return type(value).__name__


def _function(name: str) -> Callable[..., Any]:
    """The function of this name, on anything. v2's is run: it is v1's on Pillow images, and exact on uint8 tensors."""
    function = getattr(v1 if name in _OF_V1 else v2, name)
    public = getattr(v1, name, function)
    first = next(iter(inspect.signature(public).parameters))

    @functools.wraps(public)
    def on_anything(*args: Any, **kwargs: Any) -> Any:
        if not args and first in kwargs:
            args = (kwargs.pop(first),)
        return function(*map(_image, args[:1]), *args[1:], **kwargs)

    on_anything.__module__ = __name__
    on_anything.__doc__ = f"``torchvision.transforms.functional.{name}`` on anything that ``accel.functional`` takes."
    return on_anything


_NAMES = [name for name in (*OPS, *_COMPOSED) if hasattr(v2, name)]
globals().update({name: _function(name) for name in _NAMES})

__all__ = ["decode", *_NAMES]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...
